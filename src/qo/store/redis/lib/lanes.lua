-- Lanes: jobs that need the same groups, or callers that do, in the order of their keys. `store/__init__.py` has the
-- rules. Only the first of a lane is in ready(task) or parked(group, task), and where it is, the lane waits.
--
-- A lane is read once in a step and changed in memory. `settle` writes what can be searched: the entry of its first one
-- there, and the `open` index. The records follow at the end of the step. A lane has a set of its members only while
-- there are two or more, because most lanes of a large line may have one. Its record does not say how many: a member
-- that joins behind others is added to the set and changes nothing else.
-- include lib/groups.lua
-- exports lanes

local lanes = {}
local known -- by name, as this step sees them
local unsettled -- those that were changed since they were settled
local to_write -- those that were changed in this step
local are_stored -- by counter of those in line: whether there were any when this step first asked for a lane

at_the_beginning[#at_the_beginning + 1] = function()
  known, unsettled, to_write, are_stored = {}, {}, {}, {}
end

local function remember(name, task, text)
  -- `members` has the first ones and their keys, from place `at` on, as far as they are known, and `is_whole` says
  -- whether they are all; `shown` is the one that stands in an index. All fields at once: a table that grows costs more.
  local first, order_key, has_set, group
  if text then
    first, order_key, has_set, group = cmsgpack.unpack(text)
    group = group or nil
  end
  local lane = {
    name = name, task = task, set = key('lane:', name), members = { first, order_key }, at = 1,
    is_whole = not has_set, group = group, has_set = has_set, has_lost = false, is_stored = text and true,
    is_unsettled = false, shown = first, shown_key = order_key, shown_in = group,
  }
  known[name] = lane
  return lane
end

local function may_be_stored(counter)
  -- Nobody in line, no lanes. The answer holds for the whole step: lanes that are made in it are known.
  if are_stored[counter] == nil then
    are_stored[counter] = step.counter(counter) > 0
  end
  return are_stored[counter]
end

function lanes.get(name, task)
  -- The lane of this name; without members where there is none. `task` is CALLERS for a lane of callers. A lane is asked
  -- for before a member is counted in line, or no longer.
  local lane = known[name]
  if not lane then
    local is_stored = may_be_stored(task == CALLERS and 'waiting_callers' or 'in_line')
    lane = remember(name, task, is_stored and call('HGET', key('lanes'), name))
  end
  return lane
end

function lanes.load(task_of)
  -- Read the lanes of jobs that were not read yet, in one command; `task_of` has their tasks by name.
  local missing = {}
  for name in pairs(task_of) do
    if not known[name] then
      missing[#missing + 1] = name
    end
  end
  local found = may_be_stored('in_line') and fields_of(key('lanes'), missing) or NONE
  for i, name in ipairs(missing) do
    remember(name, task_of[name], found[i])
  end
end

local function touch(lane)
  if not lane.is_unsettled then
    lane.is_unsettled = true
    unsettled[#unsettled + 1] = lane
  end
  to_write[lane] = true
end

-- --- members --------------------------------------------------------------------------------------------------

local function know_only(lane, member, order_key)
  lane.members, lane.at, lane.is_whole = { member, order_key }, 1, not lane.has_set
end

local function know_only_the_first(lane)
  know_only(lane, lane.members[lane.at], lane.members[lane.at + 1])
end

local function read_members(lane, first, last)
  -- One more than asked, which mostly tells whether the lane ends here.
  local members = lane.members
  local found = call('ZRANGE', written(lane.set), first, last + 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    members[#members + 1] = found[i]
    members[#members + 1] = tonumber(found[i + 1])
  end
  lane.is_whole = #found / 2 < last + 2 - first
end

function lanes.nth(lane, nth, ahead)
  -- A member and its key, the first for 1; nil behind the last one. Where it has to be read, so many are.
  local members, at = lane.members, lane.at + 2 * (nth - 1)
  if at > #members and not lane.is_whole then
    read_members(lane, (#members - lane.at + 1) / 2, nth + (ahead or 1) - 2)
  end
  return members[at], members[at + 1]
end

function lanes.length(lane)
  if lane.is_whole then
    return (#lane.members - lane.at + 1) / 2
  end
  return call('ZCARD', written(lane.set))
end

local function first_of(lane)
  local first, order_key = lanes.nth(lane, 1)
  if not first then
    lane.group, lane.has_set = nil, false -- it is gone, and would be a new one
  end
  return first, order_key
end

function lanes.known_from(lane, nth)
  -- The members from this one on, as far as they are known.
  local found = {}
  for at = lane.at + 2 * (nth - 1), #lane.members, 2 do
    found[#found + 1] = lane.members[at]
  end
  return found
end

local function add(lane, member, order_key)
  local first, first_key = lanes.nth(lane, 1)
  if first and not lane.has_set then
    lane.has_set = true
    later('ZADD', lane.set, first_key, first)
  end
  if lane.has_set then
    later('ZADD', lane.set, order_key, member)
  end
  if not first or order_key < first_key then
    know_only(lane, member, order_key)
  elseif order_key < lane.members[#lane.members] then
    know_only_the_first(lane) -- it stands between those that are known
  elseif lane.is_whole then
    lane.members[#lane.members + 1] = member
    lane.members[#lane.members + 1] = order_key
  end
end

-- --- where a lane waits ---------------------------------------------------------------------------------------

local function wait_in(lane, group)
  -- In this group; ready for nil.
  if group == lane.group then
    return
  end
  local length = lanes.length(lane)
  if lane.group then
    groups.note_parked(lane.group, lane.task, -length)
  end
  if group then
    groups.note_parked(group, lane.task, length)
    step.figure(figure_names.rejected(group))
  else
    groups.add_claimable(lane.task, length)
  end
  lane.group = group
end

local function count_in(lane, change)
  if lane.group then
    groups.note_parked(lane.group, lane.task, change)
  elseif change > 0 then
    groups.add_claimable(lane.task, change)
  end
end

function lanes.park(lane, group)
  -- One of its members was found blocked by this group.
  touch(lane)
  wait_in(lane, group)
end

function lanes.look_at(lane, names, first)
  -- Park it in the first of these groups without room, from place `first` on; else it is ready.
  touch(lane)
  wait_in(lane, groups.first_without_room(names, first))
end

function lanes.enter(lane, member, order_key, names, first)
  -- A member joins. If it is the first one, the lane is looked at.
  local present, present_key = first_of(lane)
  if not present or order_key < present_key then
    touch(lane)
    wait_in(lane, groups.first_without_room(names, first))
  elseif not lane.has_set then
    touch(lane)
  end
  add(lane, member, order_key)
  count_in(lane, 1)
end

function lanes.leave(lane, member)
  -- The lane stays where it is.
  touch(lane)
  lane.has_lost = true
  count_in(lane, -1)
  if lane.has_set then
    later('ZREM', lane.set, member)
  end
  if lane.members[lane.at] == member then
    lane.at = lane.at + 2
  else
    know_only_the_first(lane)
  end
end

function lanes.rekey(lane, member, order_key)
  -- Give a member another key. The lane is not looked at.
  touch(lane)
  if lane.has_set then
    later('ZADD', lane.set, order_key, member)
  end
  local first_key = lane.members[lane.at + 1]
  if not lane.has_set or (first_key and order_key < first_key) then
    know_only(lane, member, order_key)
  elseif lane.members[lane.at] == member then
    know_only(lane)
  else
    know_only_the_first(lane)
  end
end

function lanes.look_if_first(lane, member, names, first)
  if lanes.nth(lane, 1) == member then
    lanes.look_at(lane, names, first)
  end
end

-- --- writing --------------------------------------------------------------------------------------------------

local function index_of(lane, group)
  return group and key('parked:', lane.task, group) or key('ready:', lane.task)
end

local function take_entry_out(lane, first)
  if lane.shown and (lane.shown ~= first or lane.shown_in ~= lane.group) then
    local index = index_of(lane, lane.shown_in)
    if lane.is_stored then
      later('ZREM', index, lane.shown)
    else
      take_back(index, lane.shown)
    end
    if lane.shown_in then
      groups.note_parked(lane.shown_in, lane.task, 0)
    end
    lane.shown, lane.shown_key = nil, nil
  end
end

local function put_entry_in(lane, first, order_key)
  if first and lane.shown_key ~= order_key then
    later('ZADD', index_of(lane, lane.group), order_key, first)
    if lane.group then
      groups.note_parked(lane.group, lane.task, 0)
    end
    lane.shown, lane.shown_key, lane.shown_in = first, order_key, lane.group
  end
end

function lanes.settle()
  -- All removals come before all additions, so that those of one index are one command each.
  if #unsettled > 0 then
    local to_settle = unsettled
    unsettled = {}
    for _, lane in ipairs(to_settle) do
      lane.is_unsettled = false
      take_entry_out(lane, (first_of(lane)))
    end
    for _, lane in ipairs(to_settle) do
      put_entry_in(lane, first_of(lane))
    end
  end
  groups.settle()
end

local function drop_set_of_one(lane)
  if lane.has_set and lane.has_lost and not lanes.nth(lane, 2) then
    later('ZREM', lane.set, (lanes.nth(lane, 1)))
    lane.has_set = false
  end
end

local function write_lanes()
  lanes.settle()
  for lane in pairs(to_write) do
    if lane.is_stored and not first_of(lane) then
      later('HDEL', key('lanes'), lane.name)
    end
  end
  for lane in pairs(to_write) do
    local first, order_key = first_of(lane)
    if first then
      drop_set_of_one(lane)
      later('HSET', key('lanes'), lane.name, cmsgpack.pack(first, order_key, lane.has_set, lane.group or false))
    end
  end
end

at_the_end[#at_the_end + 1] = write_lanes
