-- Places for jobs that are moved between two others; the same as in `policy/ordering.py`.
--
-- The values left for moves are numbered without gaps: step 0 is place 1, step 63 is place 64, step 64 is place 129.
-- include lib/line.lua
-- exports places

local places = {}

local function place_at(number)
  return math.floor(number / STEPS_PER_CELL) * CELL + 1 + number % STEPS_PER_CELL
end

local function step_after(place)
  -- The first step whose place is greater.
  local cell, offset = math.floor(place / CELL), place % CELL
  return offset >= STEPS_PER_CELL and (cell + 1) * STEPS_PER_CELL or cell * STEPS_PER_CELL + offset
end

local function step_before(place)
  -- The last step whose place is smaller.
  local cell, offset = math.floor(place / CELL), place % CELL
  if offset == 0 then
    return cell * STEPS_PER_CELL - 1
  end
  return cell * STEPS_PER_CELL + math.min(offset, STEPS_PER_CELL + 1) - 2
end

function places.between(low, high, next_to_high, taken)
  -- A free place strictly between two: of the at most 64 nearest to the neighbour it was moved to, the free one
  -- closest to their middle.
  local first, last = step_after(low), step_before(high)
  if next_to_high then
    first = math.max(first, last - STEPS_PER_CELL + 1)
  else
    last = math.min(last, first + STEPS_PER_CELL - 1)
  end
  local middle = math.floor((first + last) / 2)
  for distance = 0, STEPS_PER_CELL do
    for _, number in ipairs({ middle + distance, middle - distance }) do
      if first <= number and number <= last and not taken(place_at(number)) then
        return place_at(number)
      end
    end
  end
end

local function even_places(low, high, count)
  local first, last = step_after(low), step_before(high)
  local steps = last - first + 1
  if steps < count then
    return nil
  end
  local found = {}
  for index = 0, count - 1 do
    found[#found + 1] = place_at(first + math.floor((index * steps + math.floor(steps / 2)) / count))
  end
  return found
end

local function any_taken(found, taken)
  for _, place in ipairs(found) do
    if taken(place) then
      return true
    end
  end
  return false
end

function places.spread(before, after, ceiling, taken)
  -- A place for the moved job, and new ones for the nearest before and after it, each nearest first; nothing when
  -- even the widest spread finds no room.
  local width = 1
  while width <= SPREAD_AT_MOST / 2 do
    local left, right = math.min(width, #before), math.min(width, #after)
    local found = even_places(before[width + 1] or -1, after[width + 1] or ceiling, left + 1 + right)
    if found and not any_taken(found, taken) then
      local ahead, behind = {}, {}
      for i = left, 1, -1 do
        ahead[#ahead + 1] = found[i]
      end
      for i = left + 2, #found do
        behind[#behind + 1] = found[i]
      end
      return found[left + 1], ahead, behind
    end
    width = width * 2
  end
end
