-- This namespace's keys, and the format of numbers and strings.
-- exports key, digits, below, comes_before, meet_server, at_the_beginning, at_the_end

local at_the_beginning, at_the_end = {}, {} -- what parts do then; at the end those first that use others
local prefix
local keys_without_parts -- by name, of the namespace of the last step

local function meet_server(keys)
  -- At the beginning of every step.
  if not ipairs then
    know_lua() -- what Lua has itself, which is only there while a function runs
  end
  if keys[1] ~= prefix then
    prefix, keys_without_parts = keys[1], {}
  end
end

local function digits(number)
  -- All digits: `tostring` keeps only fourteen.
  return string.format('%d', number)
end

local function below(number)
  -- The end of a range of scores, without the number itself.
  return '(' .. digits(number)
end

local function key(name, of, within)
  -- No name contains a NUL, and every kind of key ends with a colon or has no name in it, so no key can equal another.
  if within then
    return prefix .. name .. of .. '\0' .. within
  elseif of then
    return prefix .. name .. of
  end
  local known = keys_without_parts[name]
  if not known then
    known = prefix .. name
    keys_without_parts[name] = known
  end
  return known
end

local function comes_before(a, b)
  -- By bytes, as in every store. Lua's own comparison of strings depends on the server's locale.
  for i = 1, math.min(#a, #b) do
    local one, other = a:byte(i), b:byte(i)
    if one ~= other then
      return one < other
    end
  end
  return #a < #b
end
