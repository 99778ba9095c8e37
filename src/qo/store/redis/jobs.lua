-- jobs: those in line in their order, then the others by submission.
--
-- Arguments  status, user, task, parent, limit, newest_first, and where an earlier call got to: in_line, from
-- Answers    the jobs found; in_line, from: where to go on, if this was not the end
--
-- A call looks at a part of them, so that none takes long. What fits into one call is one consistent state.
-- flags no-writes
-- include lib/answer.lua

local LOOK_AT_MOST = 2000
local looks = LOOK_AT_MOST
local found = {}

local function has_status(row)
  local status = arguments.status
  return not status or row.state == status or (row.state == 'running' and row.stage == status)
    or (row.state == 'succeeded' and row.stage and status == 'ready')
end

local function is_wanted(row, in_line)
  return (row.state == 'queued') == in_line and has_status(row)
    and (not arguments.user or row.user == arguments.user)
    and (not arguments.task or row.task == arguments.task)
    and (not arguments.parent or row.parent == arguments.parent)
end

local function is_enough()
  return #found >= arguments.limit
end

-- --- of a user or a parent: indexed, so all are looked at -----------------------------------------------------

local function by_key(a, b)
  return a.key < b.key
end

local function by_submission(a, b)
  if arguments.newest_first then
    return a.number > b.number
  end
  return a.number < b.number
end

local function add_of_owner()
  local name = arguments.user and key('jobs_of:', arguments.user) or key('children:', arguments.parent)
  local numbers = call('ZRANGE', name, 0, -1)
  rows.load(numbers)
  local queued, others = {}, {}
  for _, number in ipairs(numbers) do
    local row = rows.get(number)
    if is_wanted(row, true) then
      queued[#queued + 1] = row
    elseif is_wanted(row, false) then
      others[#others + 1] = row
    end
  end
  table.sort(queued, by_key)
  table.sort(others, by_submission)
  for _, some in ipairs({ queued, others }) do
    for _, row in ipairs(some) do
      if not is_enough() then
        found[#found + 1] = row
      end
    end
  end
end

-- --- of anybody: looked for in parts --------------------------------------------------------------------------

local function from_line(from)
  local numbers = call('ZRANGE', key('line'), from, from + looks - 1)
  return numbers, #numbers < looks
end

local function from_numbers(from)
  -- Numbers were drawn one after the other; those of forgotten jobs are gaps.
  local first, last = step.counter('oldest_job'), step.counter('last_job')
  local numbers = {}
  for offset = from, from + looks - 1 do
    local number = arguments.newest_first and last - offset or first + offset
    if number < first or number > last then
      return numbers, true
    end
    numbers[#numbers + 1] = string.format('%012.0f', number)
  end
  return numbers, false
end

local function add_part(in_line, from)
  -- Where to go on; nothing at the end.
  local numbers, is_all = (in_line and from_line or from_numbers)(from)
  rows.load(numbers)
  looks = looks - #numbers
  for i, number in ipairs(numbers) do
    local row = rows.get(number)
    if row and is_wanted(row, in_line) then
      found[#found + 1] = row
      if is_enough() then
        return from + i
      end
    end
  end
  return not is_all and from + #numbers or nil
end

local in_line, from = arguments.in_line, arguments.from
if arguments.user or arguments.parent then
  add_of_owner()
  from = nil
else
  from = add_part(in_line, from)
  if in_line and not from and arguments.status ~= 'queued' then
    in_line, from = false, 0
    if not is_enough() and looks > 0 then
      from = add_part(false, 0)
    end
  end
end
local jobs = {}
for i, row in ipairs(found) do
  jobs[i] = answer.job(row)
end
return answer.send({ jobs = jobs, in_line = in_line, from = from })
