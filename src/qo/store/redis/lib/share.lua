-- The portion that the parts of one step share.
-- include lib/step.lua
-- exports share

local share = {}
local left, more

function share.begin()
  left, more = step.bounds.portion, false
end

function share.left()
  return left
end

function share.more()
  -- Whether something was left over for the next step.
  return more
end

function share.take_some(count)
  -- How many of so many fit.
  local taken = math.max(0, math.min(count, left))
  left = left - taken
  more = more or taken < count
  return taken
end

function share.take(found, looks_of)
  -- The first of the found that fit, with how many looks each counts for, if not one. The others are dropped.
  local taken, kept = 0, #found
  for i, each in ipairs(found) do
    if taken >= left then
      kept = i - 1
      break
    end
    taken = taken + (looks_of and math.max(1, looks_of(each)) or 1)
  end
  left = math.max(0, left - taken)
  more = more or kept < #found
  for i = #found, kept + 1, -1 do
    found[i] = nil
  end
  return found
end
