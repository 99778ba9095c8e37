-- jobs: those in line in their order, then the others by submission.
--
-- Arguments  status, user, task, parent, limit, newest_first, and where an earlier call got to: in_line, from
-- Answers    the jobs found; in_line, from: where to go on, if this was not the end
--
-- A call looks at a part of them, so that none takes long. What fits into one call is one consistent state.
-- flags no-writes
-- include lib/answer.lua

local AT_ONCE = 200 -- rows read together; a page is mostly among the first
local looks = 2000 -- how many are left in this call
local bytes = step.bounds.claim_bytes -- of results, likewise
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
  return #found >= arguments.limit or bytes <= 0
end

-- --- where to look -------------------------------------------------------------------------------------------

local owned -- the index of the jobs of the user or the parent that is asked for
if arguments.user or arguments.parent then
  owned = arguments.user and key('jobs_of:', arguments.user) or key('children:', arguments.parent)
end
local owned_in_line

local function from_line(from, count)
  if not owned then
    return call('ZRANGE', key('line'), from, from + count - 1)
  end
  -- By the keys of the line alone, so in its order.
  owned_in_line = owned_in_line or call('ZINTER', 2, owned, key('line'), 'WEIGHTS', 0, 1)
  local numbers = {}
  for i = from + 1, math.min(from + count, #owned_in_line) do
    numbers[#numbers + 1] = owned_in_line[i]
  end
  return numbers
end

local function from_index(from, count)
  return call(arguments.newest_first and 'ZREVRANGE' or 'ZRANGE', owned, from, from + count - 1)
end

local function from_numbers(from, count)
  -- Numbers were drawn one after the other; those of forgotten jobs are gaps.
  local first, last = step.counter('oldest_job'), step.counter('last_job')
  local numbers = {}
  for offset = from, math.min(from + count - 1, last - first) do
    numbers[#numbers + 1] = string.format('%012.0f', arguments.newest_first and last - offset or first + offset)
  end
  return numbers
end

local function add_some(in_line, from)
  -- Where to go on; nothing at the end.
  local find = in_line and from_line or owned and from_index or from_numbers
  while looks > 0 do
    local count = math.min(AT_ONCE, looks)
    local numbers = find(from, count)
    rows.load(numbers)
    looks = looks - #numbers
    for i, number in ipairs(numbers) do
      local row = rows.get(number)
      looks = looks - (row and row.own_groups and groups.looks(row.own_groups) or 0) -- they are read, too
      if row and is_wanted(row, in_line) then
        found[#found + 1] = answer.job(row)
        bytes = bytes - (found[#found].result and #answer.blobs[found[#found].result] or 0)
        if is_enough() then
          return from + i
        end
      end
    end
    if #numbers < count then
      return
    end
    from = from + count
  end
  return from
end

local in_line, from = arguments.in_line, arguments.from
from = add_some(in_line, from)
if in_line and not from and arguments.status ~= 'queued' then
  in_line, from = false, 0
  if not is_enough() and looks > 0 then
    from = add_some(false, 0)
  end
end
return answer.send({ jobs = found, in_line = in_line, from = from })
