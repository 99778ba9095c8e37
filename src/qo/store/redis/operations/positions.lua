-- positions: the places of those of the given jobs that are in line.
--
-- Arguments  ids
-- Answers    for each, its position, the original one, how many were placed ahead of it and what displaced it; false: not in line
--
-- Who was placed ahead is counted from order keys alone, `policy/ordering.py` says how: jobs that drew a later sequence
-- are a range of each better priority, and of at most 126 jobs around its beginning the keys have to be looked at.
-- flags no-writes
-- include lib/line.lua

local levels -- the priorities of those in line, best first, as far as they were looked for
local moved -- of those in line at a place that a move gave them: { key, sequence }; false where they are too many

local function sequence_drawn(row)
  for _, order_key in ipairs({ row.key, row.undisturbed_key }) do
    local place = line.place_of(order_key)
    if not line.was_moved(place) then
      return line.sequence_of(place)
    end
  end
end

local function find_moved()
  if moved == nil then
    moved = call('HLEN', key('moved')) <= MOVED_COUNTED_AT_MOST and {}
    local numbers = moved and call('HVALS', key('moved')) or NONE
    rows.load(numbers)
    for _, number in ipairs(numbers) do
      local row = rows.get(number)
      if row.state == 'queued' then
        moved[#moved + 1] = { row.key, sequence_drawn(row) }
      end
    end
  end
  return moved
end

local function find_levels()
  if not levels then
    levels = {}
    local first = call('ZRANGE', key('line'), 0, 0, 'WITHSCORES')
    while first[2] do
      local level = line.priority_of(tonumber(first[2]))
      levels[#levels + 1] = level
      first = call('ZRANGEBYSCORE', key('line'), line.order_key(level + 1, 0), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    end
  end
  return levels
end

local function count_moved(row, sequence, later_after)
  -- Those ahead that joined later, less those that the ranges count whether they did or not; nothing if that is unknown.
  local count = 0
  for _, each in ipairs(moved) do
    if each[1] < row.key then
      if not each[2] then
        return nil
      end
      count = count + (each[2] > sequence and 1 or 0) - (line.place_of(each[1]) > later_after and 1 or 0)
    end
  end
  return count
end

local function count_level(level, row, sequence, earlier_up_to, later_after)
  local begin = line.order_key(level, later_after)
  local last = below(math.min(line.order_key(level + 1, 0), row.key))
  local count = call('ZCOUNT', key('line'), below(begin), last)
  local near = call(
    'ZRANGEBYSCORE', key('line'), below(line.order_key(level, earlier_up_to)), begin < row.key and begin or last,
    'WITHSCORES'
  )
  for i = 2, #near, 2 do
    local place = line.place_of(tonumber(near[i]))
    if not line.was_moved(place) and line.sequence_of(place) > sequence then
      count = count + 1
    end
  end
  return count
end

local function placed_ahead(row)
  local sequence = sequence_drawn(row)
  if not sequence or not find_moved() then
    return nil
  end
  local earlier_up_to, later_after = (sequence - MAX_BOOST) * CELL, sequence * CELL
  local count = count_moved(row, sequence, later_after)
  for _, level in ipairs(count and find_levels() or NONE) do
    if level <= line.priority_of(row.key) then
      count = count + count_level(level, row, sequence, earlier_up_to, later_after)
    end
  end
  return count
end

local numbers, places = rows.numbers(arguments.ids), {}
rows.load(numbers)
for i, number in ipairs(numbers) do
  local row = number and rows.get(number)
  places[i] = false
  if row and row.state == 'queued' then
    local position = call('ZRANK', key('line'), number) + 1
    places[i] = {
      position = position, original = row.position_original, displaced = row.displaced,
      placed_ahead = position > row.position_original and placed_ahead(row) or nil,
    }
  end
end
return step.answer({ places = places })
