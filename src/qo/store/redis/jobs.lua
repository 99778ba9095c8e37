#!lua flags=no-writes
-- jobs: those in line in their order, or the others by submission; a part of them, so that no call takes long.
--
-- Arguments  in_line, status, user, task, parent, limit, newest_first, from (where an earlier call got to)
-- Answers    the jobs found; from: where to go on, if this was not the end
-- include lib/answer.lua

local LOOK_AT_MOST = 1000

local function has_status(row)
  local status = arguments.status
  return not status or row.state == status or (row.state == 'running' and row.stage == status)
    or (row.state == 'succeeded' and row.stage and status == 'ready')
end

local function is_wanted(row)
  return (row.state == 'queued') == arguments.in_line and has_status(row)
    and (not arguments.user or row.user == arguments.user)
    and (not arguments.task or row.task == arguments.task)
    and (not arguments.parent or row.parent == arguments.parent)
end

local function by_key(a, b)
  return a.key < b.key
end

local function by_submission(a, b)
  if arguments.newest_first then
    return a.number > b.number
  end
  return a.number < b.number
end

local function of_owner()
  -- A user's or a parent's jobs are indexed, so all of them are looked at.
  local name = arguments.user and key('jobs_of:', arguments.user) or key('children:', arguments.parent)
  local numbers = call('ZRANGE', name, 0, -1)
  rows.load(numbers)
  local found = {}
  for _, number in ipairs(numbers) do
    local row = rows.get(number)
    if is_wanted(row) then
      found[#found + 1] = row
    end
  end
  table.sort(found, arguments.in_line and by_key or by_submission)
  for i = #found, arguments.limit + 1, -1 do
    found[i] = nil
  end
  return found
end

local function line_part(from)
  local numbers = call('ZRANGE', key('line'), from, from + LOOK_AT_MOST - 1)
  return numbers, #numbers == LOOK_AT_MOST and from + LOOK_AT_MOST or nil
end

local function numbers_part(from)
  -- Numbers were drawn one after the other; those of forgotten jobs are gaps.
  local first, last = step.counter('oldest_job'), step.counter('last_job')
  local numbers = {}
  for offset = from, from + LOOK_AT_MOST - 1 do
    local number = arguments.newest_first and last - offset or first + offset
    if number < first or number > last then
      return numbers, nil
    end
    numbers[#numbers + 1] = string.format('%012.0f', number)
  end
  return numbers, from + LOOK_AT_MOST
end

local function part()
  local from = arguments.from or 0
  local numbers, following
  if arguments.in_line then
    numbers, following = line_part(from)
  else
    numbers, following = numbers_part(from)
  end
  rows.load(numbers)
  local found = {}
  for i, number in ipairs(numbers) do
    local row = rows.get(number)
    if row and is_wanted(row) then
      found[#found + 1] = row
      if #found == arguments.limit then
        return found, from + i
      end
    end
  end
  return found, following
end

local found, following
if arguments.user or arguments.parent then
  found = of_owner()
else
  found, following = part()
end
local jobs = {}
for i, row in ipairs(found) do
  jobs[i] = answer.job(row)
end
return answer.send({ jobs = jobs, from = following })
