-- jobs: those in line in their order, then the others by submission.
--
-- Arguments  ids, or: status, user, task, parent, project, tier, priority, id_prefix, ended, limit, newest_first;
--            looks: how many rows to look at; where an earlier call ended: in_line, last (an order key in line, a number
--            behind it), or of ended jobs: ended_at, ended_number
-- Answers    the jobs found (of ids: in their order); at_the_end, or where the search ended: in_line, last; how many looks are left
--
-- A call looks at a part of them, so that none takes long. What fits into one call is one consistent state.
-- flags no-writes
-- include lib/answer.lua

if arguments.ids then
  local numbers, jobs = {}, {}
  for _, number in ipairs(rows.numbers(arguments.ids)) do
    numbers[#numbers + 1] = number or nil
  end
  for i, row in ipairs(rows.of(numbers)) do
    jobs[i] = answer.job(row)
  end
  return answer.send({ jobs = jobs })
end

local AT_ONCE = 200 -- rows read together; a page is mostly among the first
local looks = arguments.looks
local bytes = step.bounds.claim_bytes -- of results that one call answers
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
    and (not arguments.project or row.project == arguments.project)
    and (not arguments.tier or row.tier == arguments.tier)
    and (not arguments.priority or row.priority == arguments.priority)
    and (not arguments.id_prefix or row.id:sub(1, #arguments.id_prefix) == arguments.id_prefix)
end

local function is_enough()
  return #found >= arguments.limit or bytes <= 0
end

-- --- where to look -------------------------------------------------------------------------------------------

local owned -- the index of the jobs of the user or the parent that is asked for
if arguments.user or arguments.parent then
  owned = arguments.user and key('jobs_of:', arguments.user) or key('children:', arguments.parent)
end
local owned_in_line

local function from_line(last, count)
  -- Their numbers; where a search for some user or parent has to pass a job by, its key is not known without its row.
  if not owned then
    return call('ZRANGEBYSCORE', key('line'), last and below(last) or '-inf', '+inf', 'LIMIT', 0, count)
  end
  -- By the keys of the line alone, so in its order.
  owned_in_line = owned_in_line or call('ZINTER', 2, owned, key('line'), 'WEIGHTS', 0, 1, 'WITHSCORES')
  local numbers = {}
  for i = 1, #owned_in_line, 2 do
    if #numbers < count and (not last or tonumber(owned_in_line[i + 1]) > last) then
      numbers[#numbers + 1] = owned_in_line[i]
    end
  end
  return numbers
end

local function from_index(last, count)
  if arguments.newest_first then
    return call('ZREVRANGEBYSCORE', owned, last and below(last) or '+inf', '-inf', 'LIMIT', 0, count)
  end
  return call('ZRANGEBYSCORE', owned, last and below(last) or '-inf', '+inf', 'LIMIT', 0, count)
end

local function from_numbers(last, count)
  -- Numbers were drawn one after the other; those of forgotten jobs are gaps.
  local oldest, newest = step.counter('oldest_job'), step.counter('last_job')
  local numbers = {}
  if arguments.newest_first then
    local first = math.min(newest, last and last - 1 or newest)
    for number = first, math.max(oldest, first - count + 1), -1 do
      numbers[#numbers + 1] = string.format('%012d', number)
    end
  else
    local first = math.max(oldest, last and last + 1 or oldest)
    for number = first, math.min(newest, first + count - 1) do
      numbers[#numbers + 1] = string.format('%012d', number)
    end
  end
  return numbers
end

local function add_some(in_line, last)
  -- Whether that was the end, else where the search ended.
  local find = in_line and from_line or owned and from_index or from_numbers
  while looks > 0 do
    local count = math.min(AT_ONCE, looks)
    local numbers = find(last, count)
    rows.load(numbers)
    looks = looks - #numbers
    for _, number in ipairs(numbers) do
      local row = rows.get(number)
      last = in_line and row.key or tonumber(number)
      looks = looks - (row and row.own_groups and groups.looks(row.own_groups) or 0) -- they are read, too
      if row and is_wanted(row, in_line) then
        found[#found + 1] = answer.job(row)
        bytes = bytes - (found[#found].result and #answer.blobs[found[#found].result] or 0)
        if is_enough() then
          return false, last
        end
      end
    end
    if #numbers < count then
      return true
    end
  end
  return false, last
end

-- --- jobs that have ended, in the order of their ends -----------------------------------------------------------

local function is_passed(number, at)
  -- Whether an earlier call has come as far as this one.
  if not arguments.ended_at or at ~= arguments.ended_at then
    return false
  elseif arguments.newest_first then
    return number >= arguments.ended_number
  end
  return number <= arguments.ended_number
end

local function first_rank()
  -- How many ended after the last one that an earlier call looked at (or before it); those of its millisecond may
  -- come again, and `is_passed` tells which.
  if not arguments.ended_at then
    return 0
  elseif arguments.newest_first then
    return call('ZCOUNT', key('finished'), below(arguments.ended_at), '+inf')
  end
  return call('ZCOUNT', key('finished'), '-inf', below(arguments.ended_at))
end

local function add_ended()
  local command = arguments.newest_first and 'ZREVRANGE' or 'ZRANGE'
  local rank, ended_at, ended_number = first_rank(), arguments.ended_at, arguments.ended_number
  while looks > 0 do
    local count = math.min(AT_ONCE, looks)
    local ends, numbers = call(command, key('finished'), rank, rank + count - 1, 'WITHSCORES'), {}
    for i = 1, #ends, 2 do
      if not is_passed(ends[i], tonumber(ends[i + 1])) then
        numbers[#numbers + 1] = ends[i]
      end
    end
    rank, looks = rank + #ends / 2, looks - #numbers
    for _, row in ipairs(rows.of(numbers)) do
      ended_at, ended_number = row.finished_at, row.number
      if is_wanted(row, false) then
        found[#found + 1] = answer.job(row)
        bytes = bytes - (found[#found].result and #answer.blobs[found[#found].result] or 0)
        if is_enough() then
          return { jobs = found, at_the_end = false, ended_at = ended_at, ended_number = ended_number, looks = looks }
        end
      end
    end
    if #ends / 2 < count then
      return { jobs = found, at_the_end = true }
    end
  end
  return { jobs = found, at_the_end = false, ended_at = ended_at, ended_number = ended_number, looks = looks }
end

if arguments.ended then
  return answer.send(add_ended())
end

local in_line = arguments.in_line
local at_the_end, last = add_some(in_line, arguments.last)
if in_line and at_the_end and arguments.status ~= 'queued' then
  in_line, at_the_end = false, false
  if looks > 0 then
    at_the_end, last = add_some(false, nil)
  end
end
return answer.send({ jobs = found, at_the_end = at_the_end, in_line = in_line, last = last, looks = looks })
