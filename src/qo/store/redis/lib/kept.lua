-- The slots that turns keep: `kept` and `room for` in `store/__init__.py`; the same as `policy/turns.py`.
--
-- They are worked out when a walk begins. Until its end, `kept_from` of a group is the key of the first turn that asks
-- for a slot of it: for all behind that key, `groups.has_room_for` counts one slot more as held.
-- include lib/tickets.lua
-- include lib/overdue.lua
-- include lib/turns.lua
-- include lib/workers.lua
-- exports kept

local kept = {}
local marked -- the groups with a kept slot, during a walk
local asks -- by key: whether a turn of that key asks for a slot, during a walk
local in_order, as_of -- all that have a turn, as of a count of changes

at_the_beginning[#at_the_beginning + 1] = function()
  marked, asks, in_order = {}, {}, nil
end

function kept.turn_of(waiting)
  -- A job or a ticket as those with a turn are listed here.
  local names = waiting.number and tasks.groups_of(waiting) or waiting.groups
  return { key = waiting.key, waiting = waiting, task = waiting.task, names = names, name = waiting.id or waiting.holder }
end

function kept.sort(all)
  table.sort(all, function(a, b)
    return a.key < b.key
  end)
  return all
end

function kept.turns()
  -- All that have a turn, in the order of the line. The list must not be changed.
  if in_order and as_of == turns.changes() then
    return in_order
  end
  local numbers, holders = turns.listed()
  local found = {}
  rows.load(numbers)
  for _, number in ipairs(numbers) do
    local row = rows.get(number)
    -- A qo from before turns starts jobs, and deletes them, without ending their turns.
    if row and row.state == 'queued' then
      found[#found + 1] = kept.turn_of(row)
    end
  end
  for _, holder in ipairs(holders) do
    local ticket = tickets.get(holder)
    if ticket then
      found[#found + 1] = kept.turn_of(ticket)
    end
  end
  in_order, as_of = kept.sort(found), turns.changes()
  return in_order
end

local function is_near(name, task)
  return name == task or NEAR_KINDS[name:match('^([^:]*):') or '']
end

local function asks_for(turn, asking)
  -- The names of the groups of which it asks for a slot.
  if turn.task and (overdue.is(turn.waiting) or not workers.serve(turn.task)) then
    return NONE
  end
  local near, all, has_near_room = {}, {}, true
  for _, group in ipairs(groups.of(turn.names)) do
    if group.paused or group.closed_until or group.limit == 0 then
      return NONE
    elseif group.limit and group.name ~= 'global' then
      all[#all + 1] = group.name
      if turn.task and is_near(group.name, turn.task) then
        near[#near + 1] = group.name
        has_near_room = has_near_room and group.active + (asking[group.name] and 1 or 0) < group.limit
      end
    end
  end
  return has_near_room and all or near
end

function kept.by(all)
  -- By group: those of these turns, which are in the order of the line, that ask for a slot of it, in that order.
  local asking, names = {}, {}
  if step.counter('turn_after') == 0 then
    return asking
  end
  for _, turn in ipairs(all) do
    for _, name in ipairs(turn.names) do
      names[#names + 1] = name
    end
  end
  groups.load(names)
  for _, turn in ipairs(all) do
    for _, name in ipairs(asks_for(turn, asking)) do
      asking[name] = asking[name] or {}
      table.insert(asking[name], turn)
    end
  end
  return asking
end

function kept.now()
  return turns.are_there() and kept.by(kept.turns()) or NONE
end

-- --- during a walk ----------------------------------------------------------------------------------------------

function kept.begin()
  for name, asking in pairs(kept.now()) do
    local group = groups.get(name)
    group.asking, group.kept_from = asking, asking[1].key
    marked[#marked + 1] = group
    for _, turn in ipairs(asking) do
      asks[turn.key] = true
    end
  end
end

function kept.count()
  -- In how many groups a slot is kept.
  return #marked
end

function kept.ended(order_key)
  -- The job or caller of this key has got its slots, has them reserved, or is gone: it asks no longer.
  if not asks[order_key] then
    return
  end
  asks[order_key] = nil
  for _, group in ipairs(marked) do
    for i = #group.asking, 1, -1 do
      if group.asking[i].key == order_key then
        table.remove(group.asking, i)
      end
    end
    group.kept_from = group.asking[1] and group.asking[1].key
  end
end

function kept.forget()
  for _, group in ipairs(marked) do
    group.asking, group.kept_from = nil, nil
  end
  marked, asks = {}, {}
end
