-- Slot numbers: the lowest free one is taken first.
--
-- Numbers below the highest held one that are not held are kept as free. So if none is free, the highest held number
-- is the count of held ones less one.
-- include lib/rows.lua
-- exports slot_numbers

local slot_numbers = {}
local FREE_AT_ONCE = 16 -- how many free numbers are read at a time

local function held_count(group)
  -- Kept in memory only for groups with a limit.
  return group.limit and group.active or call('ZCARD', written(key('held:', group.name)))
end

local function lowest(numbers)
  local at = 1
  for i = 2, #numbers do
    if numbers[i] < numbers[at] then
      at = i
    end
  end
  return at
end

local function lowest_free(group)
  if group.limit and group.active == 0 and not group.returned then
    return nil
  end
  local free = group.free
  if not free or (free.at > #free and #free == FREE_AT_ONCE) then
    free = call('ZRANGE', written(key('free:', group.name)), 0, FREE_AT_ONCE - 1)
    free.at = 1
    group.free = free
  end
  return tonumber(free[free.at])
end

function slot_numbers.next(group)
  -- The lowest free or returned number, or else the one above the highest held.
  local free, returned = lowest_free(group), group.returned
  local at = returned and #returned > 0 and lowest(returned)
  if at and (not free or returned[at] < free) then
    return table.remove(returned, at)
  elseif free then
    later('ZREM', key('free:', group.name), group.free[group.free.at])
    group.free.at = group.free.at + 1
    return free
  end
  group.highest = (group.highest or held_count(group) - 1) + 1
  return group.highest
end

local function has_gaps(numbers)
  -- Whether a number below the highest of these is missing.
  local highest = -1
  for _, number in ipairs(numbers) do
    highest = math.max(highest, number)
  end
  return #numbers <= highest
end

function slot_numbers.keep_free(group)
  local free, returned = key('free:', group.name), group.returned
  if held_count(group) == 0 then
    if has_gaps(returned) then
      call('DEL', written(free))
    end
    later('SREM', key('holding'), group.name)
  else
    local highest = tonumber(call('ZREVRANGE', written(key('held:', group.name)), 0, 0, 'WITHSCORES')[2])
    for _, number in ipairs(returned) do
      if number < highest then
        later('ZADD', free, number, number)
      end
    end
    call('ZREMRANGEBYSCORE', written(free), below(highest), '+inf')
  end
  group.returned, group.free, group.highest = nil, nil, nil
end
