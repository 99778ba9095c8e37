-- The candidates that may start next, in order, without reading jobs that are known to be blocked.
--
-- The next one is the smallest of the heads of ready(task), of parked(group, task) for groups in open(task), and of the
-- lanes whose first one was taken already. The open index is only read; the lanes parked in a group are read from the
-- first one on, as far as they are wanted, and so are the members of a lane. Nothing is settled during a walk, so no
-- index shows a lane for a second time.
--
-- Whether a kept slot leaves room for a candidate is asked when it is the smallest of all. All turns before it are dealt
-- with then, so the answer holds for everything behind it, too: in that group, or of that task.
-- include lib/lease.lua
-- include lib/kept.lua
-- exports walk

local walk = {}
local LARGEST_BATCH = 64
local batch -- how many are read at a time
local lanes_found -- how many lanes this walk has found in the indexes

local function source(name)
  return { name = name, found = NONE, at = 1, after = '-inf' }
end

local function head(from)
  -- The next member and its key; nil at the end.
  if from.at > #from.found then
    if from.ended then
      return
    end
    local found = call('ZRANGEBYSCORE', written(from.name), from.after, '+inf', 'WITHSCORES', 'LIMIT', 0, batch)
    from.found, from.at = found, 1
    from.ended = #found < 2 * batch
    if #found == 0 then
      return
    end
    from.after = '(' .. found[#found]
    if from.read then
      from.read(found)
    end
  end
  return from.found[from.at], tonumber(from.found[from.at + 1])
end

local function skip(from)
  from.at = from.at + 2
end

local function count_lanes(found)
  lanes_found = lanes_found + #found / 2
end

local function load_jobs(found)
  count_lanes(found)
  local numbers = {}
  for i = 1, #found, 2 do
    numbers[#numbers + 1] = found[i]
  end
  line.look_up_lanes(rows.of(numbers))
end

local function has_room(group, order_key)
  return groups.has_room_for(groups.get(group), order_key)
end

local function open_group(from)
  -- The next group in the open index that still has room.
  while true do
    local name, first = head(from)
    if not name or has_room(name) then
      return name, first
    end
    skip(from)
  end
end

local function new_task(task, known)
  -- `known`: all ready jobs, if they are known without a read; then no job is parked.
  local ready, open = source(key('ready:', task)), source(key('open:', task))
  ready.read = task == CALLERS and count_lanes or load_jobs
  if known then
    ready.found, ready.ended, open.ended = known, true, true
    count_lanes(known)
  end
  return { task = task, ready = ready, open = open, parked = {}, begun = {} }
end

-- --- lanes that something was taken from ------------------------------------------------------------------------

-- `begun` has them by the key of the next member, the smallest one last, so that taking it moves no other.

local function insert(begun, from)
  local low, high = 1, #begun + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if begun[middle].key > from.key then
      low = middle + 1
    else
      high = middle
    end
  end
  table.insert(begun, low, from)
end

local function go_on(candidates)
  -- After the candidate that was examined last, the next of its lane is one: unless the lane was parked or passed over.
  local last = candidates.last
  candidates.last = nil
  if not last or last.is_over or (last.lane.group and not has_room(last.lane.group, last.key)) then
    return
  end
  local member, order_key = lanes.nth(last.lane, last.passed + 1, last.ahead)
  if member == last.member then
    last.passed = last.passed + 1 -- it stays in line until its worker takes it
    member, order_key = lanes.nth(last.lane, last.passed + 1, last.ahead)
  end
  if member then
    last.member, last.key = member, order_key
    last.ahead = math.min(2 * last.ahead, LARGEST_BATCH)
    insert(candidates.begun, last)
  end
end

local function first_begun(begun)
  while #begun > 0 do
    local from = begun[#begun]
    if not from.lane.group or has_room(from.lane.group) then
      return from
    end
    begun[#begun] = nil
  end
end

local function take_begun(begun)
  local from = begun[#begun]
  begun[#begun] = nil
  if from.lane.task ~= CALLERS then
    if not rows.is_read(from.member) then
      rows.load(lanes.known_from(from.lane, from.passed + 1))
    end
    line.note_lane(from.member, from.lane)
  end
  return from
end

local function begin_lane(task, member, order_key)
  local lane
  if task == CALLERS then
    lane = tickets.lane_of(tickets.get(member))
  else
    lane = line.lane_of(rows.get(member))
  end
  -- The more lanes there are, the fewer will probably be taken from each.
  return { lane = lane, member = member, key = order_key, passed = 0, ahead = math.ceil(batch / lanes_found) }
end

-- --- the next candidate -----------------------------------------------------------------------------------------

local function first_of(candidates)
  -- The smallest key of a task's candidates, and how to take it.
  if candidates.are_over then
    return
  end
  go_on(candidates)
  local best, key_of_best
  local _, ready_key = head(candidates.ready)
  if ready_key then
    best, key_of_best = candidates.ready, ready_key
  end
  local name, open_key = open_group(candidates.open)
  if name and (not key_of_best or open_key < key_of_best) then
    best, key_of_best = candidates.open, open_key
  end
  for i = #candidates.parked, 1, -1 do
    local from = candidates.parked[i]
    local _, parked_key
    if has_room(from.group) then
      _, parked_key = head(from)
    end
    if not parked_key then
      table.remove(candidates.parked, i)
    elseif not key_of_best or parked_key < key_of_best then
      best, key_of_best = from, parked_key
    end
  end
  local begun = first_begun(candidates.begun)
  if begun and (not key_of_best or begun.key < key_of_best) then
    best, key_of_best = candidates.begun, begun.key
  end
  return best, key_of_best
end

local function take(candidates, from)
  if from == candidates.begun then
    candidates.last = take_begun(from)
    return candidates.last
  end
  if from == candidates.open then
    local group = head(from)
    skip(from)
    from = source(key('parked:', candidates.task, group))
    from.group, from.read = group, candidates.ready.read
    candidates.parked[#candidates.parked + 1] = from
  end
  local member, order_key = head(from)
  skip(from)
  candidates.last = begin_lane(candidates.task, member, order_key)
  return candidates.last
end

function walk.over(task_names, expected)
  -- `expected` is the probable number of candidates; so many are read at a time.
  batch, lanes_found = math.min(math.max(expected, 1), LARGEST_BATCH), 0
  kept.begin()
  local all = {}
  for _, task in ipairs(task_names) do
    local known = task ~= CALLERS and line.candidates(task) or nil
    if known ~= NONE then
      all[#all + 1] = new_task(task, known)
    end
  end
  return all
end

local function group_of(candidates, from)
  -- The group that the next candidate from there is parked in.
  if from == candidates.open then
    return (head(from))
  elseif from == candidates.begun then
    return from[#from].lane.group
  end
  return from.group
end

local function drop(candidates, from)
  -- Nothing more that is parked in the group of the next candidate from there.
  if from == candidates.open then
    skip(from)
  elseif from == candidates.begun then
    from[#from] = nil
  else
    from.found, from.at, from.ended = NONE, 1, true
  end
end

local function gate_lets_by(task, order_key)
  return groups.has_room_unspoken(groups.get((tasks.of_source(task))), order_key)
end

local function is_left_room(candidates, from, order_key)
  -- Whether kept slots leave room for this candidate, which is the smallest; else it is dropped.
  if kept.count() == 0 then
    return true
  end
  if candidates.task ~= CALLERS and not gate_lets_by(candidates.task, order_key) then
    candidates.are_over = true
    return false
  end
  local group = group_of(candidates, from)
  if group and not has_room(group, order_key) then
    drop(candidates, from)
    return false
  end
  return true
end

local function smallest(all, passes)
  local best, from, best_key
  for i = #all, 1, -1 do
    local candidates = all[i]
    if not passes(candidates.task) then
      local found, order_key = first_of(candidates)
      if not found then
        table.remove(all, i) -- nothing comes to it during a walk
      elseif not best_key or order_key < best_key then
        best, from, best_key = candidates, found, order_key
      end
    end
  end
  return best, from, best_key
end

function walk.first(all, passes)
  -- The first candidate of all tasks that are not skipped: its task, and where to take it from.
  local best, from, order_key
  repeat
    best, from, order_key = smallest(all, passes)
  until not best or is_left_room(best, from, order_key)
  return best, from
end

function walk.next(all, passes)
  -- The next candidate: its task; its number, or a caller's name; and how to pass over its lane.
  local candidates, from = walk.first(all, passes)
  if candidates then
    local taken = take(candidates, from)
    return candidates.task, taken.member, taken
  end
end

function walk.pass_over(taken)
  -- Nothing more of the candidate's lane.
  taken.is_over = true
end

local function read_on(from)
  -- Read more behind what is known, without skipping any of it.
  local found = call('ZRANGEBYSCORE', written(from.name), from.after, '+inf', 'WITHSCORES', 'LIMIT', 0, batch)
  from.ended = #found < 2 * batch
  for _, value in ipairs(found) do
    from.found[#from.found + 1] = value
  end
  from.after = #found > 0 and '(' .. found[#found] or from.after
end

local function is_any_open(from)
  -- Whether a group in the open index has room for the first one that is parked there.
  local at = head(from) and from.at
  while at do
    local name, order_key = from.found[at], tonumber(from.found[at + 1])
    if has_room(name, order_key) then
      return true
    end
    at = at + 2
    if at > #from.found and not from.ended then
      read_on(from)
    end
    at = at <= #from.found and at
  end
  return false
end

local function is_any_there(candidates)
  -- As things are now: what is kept may change with each candidate that is dealt with, so nothing is dropped here.
  go_on(candidates)
  if head(candidates.ready) or is_any_open(candidates.open) then
    return true
  end
  for _, from in ipairs(candidates.parked) do
    local _, order_key = head(from)
    if order_key and has_room(from.group, order_key) then
      return true
    end
  end
  for _, from in ipairs(candidates.begun) do
    if not from.lane.group or has_room(from.lane.group, from.key) then
      return true
    end
  end
  return false
end

function walk.has_callers(all)
  for _, candidates in ipairs(all) do
    if candidates.task == CALLERS then
      return is_any_there(candidates)
    end
  end
  return false
end
