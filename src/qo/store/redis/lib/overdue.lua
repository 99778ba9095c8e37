-- Jobs that have not started by their `start_by`, and the quota that jobs give back which never started. The rule is in
-- `policy/start_by.py`.
-- include lib/users.lua
-- exports overdue

local overdue = {}
local joined -- by task: how many jobs became claimable because quota was given back, as far as nobody has asked for it

at_the_beginning[#at_the_beginning + 1] = function()
  joined = {}
end

function overdue.is(row)
  -- Whether a job in line must not start any more.
  if row.started_at then
    return false
  elseif row.steady_start_by then
    return row.steady_start_by <= step.steady_now()
  end
  return row.start_by ~= nil and row.start_by <= step.now
end

function overdue.fail(row)
  -- The calling function then gives its quota back, together with that of others.
  lease.end_job(row, 'failed', cjson.encode({ message = row.overdue_message }))
end

-- --- giving quota back ------------------------------------------------------------------------------------------

local function move_forward(refunded)
  table.sort(refunded, comes_before)
  for i, user in ipairs(refunded) do
    if user ~= refunded[i - 1] then
      local standing = users.standing(user)
      quota.move_forward(user, standing and standing.daily_quota)
      users.note_idle(user)
    end
  end
end

local function count_joined(move)
  -- Count what becomes claimable meanwhile.
  lanes.settle()
  local before = {}
  for task, count in pairs(groups.made_claimable()) do
    before[task] = count
  end
  move()
  lanes.settle()
  for task, count in pairs(groups.made_claimable()) do
    local more = count - (before[task] or 0)
    if more > 0 then
      joined[task] = (joined[task] or 0) + more
    end
  end
end

function overdue.give_quota_back(ended)
  -- The quota of jobs that ended without a start, if their days are not over; then the deferred jobs of their users move
  -- forward. Returns whether there was any.
  local refunded = {}
  for _, row in ipairs(ended) do
    if row.user and row.quota_day and row.quota_day >= quota.day_of(step.now) then
      quota.charge(row.user, row.quota_day, -1)
      row.quota_day = nil
      rows.save(row)
      refunded[#refunded + 1] = row.user
    end
  end
  if #refunded == 0 then
    return false
  end
  count_joined(function()
    move_forward(refunded)
  end)
  return true
end

function overdue.take_joined()
  -- What became claimable because of that since this was last asked.
  local found = joined
  joined = {}
  return found
end

-- --- one portion ------------------------------------------------------------------------------------------------

local function add(late, index, difference)
  local found = step.due_with_times(index)
  for i = 1, #found, 2 do
    late[#late + 1] = { number = found[i], at = tonumber(found[i + 1]) + difference }
  end
end

function overdue.fail_portion()
  -- Returns the ids of the jobs, and whether that was all.
  local late = {}
  add(late, 'start_by', 0)
  add(late, 'steady_start_by', step.counter('fallen_ms'))
  if #late == 0 then
    return {}, true
  end
  table.sort(late, function(a, b)
    if a.at ~= b.at then
      return a.at < b.at
    end
    return comes_before(a.number, b.number)
  end)
  local numbers, ids = {}, {}
  for i = 1, math.min(#late, step.bounds.portion) do
    numbers[i] = late[i].number
  end
  local jobs = rows.of(numbers)
  line.look_up_lanes(jobs)
  for i, row in ipairs(jobs) do
    overdue.fail(row)
    ids[i] = row.id
  end
  overdue.give_quota_back(jobs)
  return ids, #ids == #late
end
