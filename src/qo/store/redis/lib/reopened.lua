-- Groups that have room again for some, because a turn keeps no slot of them any more: workers are to be woken as if
-- their room had changed, though all the time they had a free slot.
--
-- `kept` has by group the key behind which a kept slot leaves no room, as the last step that may have changed it left it.
-- include lib/kept.lua
-- exports reopened

local reopened = {}
local before -- as the last look, or the last step, has left it
local has_changed

at_the_beginning[#at_the_beginning + 1] = function()
  before, has_changed = nil, false
end

local function closed_behind()
  -- By group: the key behind which there is no room, where the kept slot is the only free one.
  local closed = {}
  for name, asking in pairs(kept.now()) do
    local group = groups.get(name)
    if groups.has_room(group) and group.active + 1 >= group.limit then
      closed[name] = asking[1].key
    end
  end
  return closed
end

local function stored()
  local text = step.counter('kept') > 0 and call('GET', key('kept'))
  return text and cmsgpack.unpack(text) or {}
end

local function is_other(closed)
  for name, order_key in pairs(closed) do
    if before[name] ~= order_key then
      return true
    end
  end
  for name in pairs(before) do
    if not closed[name] then
      return true
    end
  end
  return false
end

function reopened.look()
  -- Notes the groups that have room again, and returns whether there are any.
  if not (turns.changes() > 0 or groups.slots_changed()) or not (turns.are_there() or step.counter('kept') > 0) then
    return false
  end
  before = before or stored()
  local closed, any = closed_behind(), false
  for name, order_key in pairs(before) do
    local group = groups.get(name)
    if groups.has_room(group) and (not closed[name] or closed[name] > order_key) then
      groups.note_room(group)
      any = true
    end
  end
  has_changed = has_changed or is_other(closed)
  before = closed
  return any
end

at_the_end[#at_the_end + 1] = function()
  if not has_changed then
    return
  end
  local count = 0
  for _ in pairs(before) do
    count = count + 1
  end
  if count > 0 then
    call('SET', key('kept'), cmsgpack.pack(before))
  else
    call('DEL', key('kept'))
  end
  step.set_counter('kept', count)
end
