-- The part of upkeep that lets jobs which have waited long in line move up.
-- include lib/share.lua
-- include lib/hand_over.lua
-- exports aging

local aging = {}

local function aged_priority(priority)
  local above
  for _, level in ipairs(AGED_LEVELS) do
    if level < priority then
      above = level
    end
  end
  return above
end

function aging.run(period_ms)
  -- The ids of the jobs that moved up. Those that cannot are looked at, too.
  local found, ids = rows.due('aged', step.now - period_ms, share.left() + 1), {}
  local taken = share.take(found, function(row)
    return groups.looks(tasks.groups_of(row))
  end)
  line.look_up_lanes(taken)
  for _, row in ipairs(taken) do
    local priority = aged_priority(line.priority_of(row.key))
    row.aged_at = step.now
    later('ZADD', key('aged'), step.now, row.number)
    rows.save(row)
    if priority then
      line.enter_again(row, line.order_key(priority, line.place_of(row.key)))
      step.event('aged', row.id, { priority = priority })
      ids[#ids + 1] = row.id
    end
  end
  return ids
end
