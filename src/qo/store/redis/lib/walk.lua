-- The candidates that may start next, in order, without reading jobs that are known to be blocked.
--
-- The next one is the smallest of the heads of ready(task) and of parked(group, task) for groups in open(task). The
-- open index is only read; a group's own parked jobs are read from its first one on, as far as they are wanted.
-- include lib/lease.lua
-- exports walk

local walk = {}
local LARGEST_BATCH = 64
local batch -- how many are read at a time

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

local function members(found)
  local names = {}
  for i = 1, #found, 2 do
    names[#names + 1] = found[i]
  end
  return names
end

local function load_jobs(found)
  rows.load(members(found))
end

local function open_group(from)
  -- The next group in the open index that still has room.
  while true do
    local name, first = head(from)
    if not name or groups.has_room(groups.get(name)) then
      return name, first
    end
    skip(from)
  end
end

local function new_task(task, known)
  -- `known`: all ready jobs, if they are known without a read; then no job is parked.
  local ready, open = source(key('ready:', task)), source(key('open:', task))
  if known then
    ready.found, ready.ended, open.ended = known, true, true
  elseif task ~= CALLERS then
    ready.read = load_jobs
  end
  return { task = task, ready = ready, open = open, parked = {} }
end

local function first_of(candidates)
  -- The smallest key of a task's candidates, and how to take it.
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
    if groups.has_room(groups.get(from.group)) then
      _, parked_key = head(from)
    end
    if not parked_key then
      table.remove(candidates.parked, i)
    elseif not key_of_best or parked_key < key_of_best then
      best, key_of_best = from, parked_key
    end
  end
  return best, key_of_best
end

local function take(candidates, from)
  if from == candidates.open then
    local group = head(from)
    skip(from)
    from = source(key('parked:', candidates.task, group))
    from.group, from.read = group, candidates.ready.read
    candidates.parked[#candidates.parked + 1] = from
  end
  local member = head(from)
  skip(from)
  return member
end

function walk.over(task_names, expected)
  -- `expected` is the probable number of candidates; so many are read at a time.
  batch = math.min(math.max(expected, 1), LARGEST_BATCH)
  local all = {}
  for _, task in ipairs(task_names) do
    local known = task ~= CALLERS and line.candidates(task) or nil
    if known ~= NONE then
      all[#all + 1] = new_task(task, known)
    end
  end
  return all
end

function walk.first(all, passes)
  -- The first candidate of all tasks that are not skipped: its task, and where to take it from.
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
  return best, from
end

function walk.next(all, passes)
  -- The next candidate: its task and its number, or a caller's name.
  local candidates, from = walk.first(all, passes)
  if candidates then
    return candidates.task, take(candidates, from)
  end
end

function walk.has_callers(all)
  for _, candidates in ipairs(all) do
    if candidates.task == CALLERS and first_of(candidates) then
      return true
    end
  end
  return false
end
