-- submit: admit each job or refuse it, one after the other.
--
-- Arguments  submissions, each with the number of its payload in argv
-- Answers    for each, the job or the reason; the day
-- Events     the state of each job accepted. Audit "submit" where the submitter is named
--
-- A refused one must leave nothing, and nothing can be undone: whether it is refused is worked out first, also what
-- the user's other standing would bring into the line.
-- include lib/catch_up.lua
-- include lib/users.lua
-- include lib/answer.lua
-- include lib/wake.lua

local function phase_of(parent, phase)
  -- The phase's newest job: those before it were cancelled.
  local number = call('HGET', written(key('phases:', parent)), phase)
  return number and rows.get(number)
end

local function accepted(row, standing, known, ignored)
  local position = row.state == 'queued' and not known and row.position_original or nil
  return {
    job = answer.job(row, position),
    known = known,
    ignored = ignored,
    used_today = row.user and quota.used_on(row.user, quota.day_of(step.now)) or nil,
    daily_quota = row.user and standing and standing.daily_quota or nil,
  }
end

local function is_never_in_time(submission)
  -- Whether the job could not join the line before it is overdue.
  local within_ms = submission.start_within_ms
  local latest = within_ms and step.now + within_ms or submission.start_by_ms
  if not latest then
    return false
  end
  return latest <= math.max(step.now, submission.run_at_ms or 0, step.now + (submission.delay_ms or 0))
end

local function known_before(submission, number)
  -- The answer where the id, the unique key or the phase is there already, or the job could not start in time.
  local row = number and rows.get(number)
  if not row and submission.unique then
    local other = call('HGET', written(key('unique')), submission.unique)
    row = other and rows.get(other)
  end
  if row then
    return accepted(row, row.user and users.standing(row.user), true)
  end
  local taken_by = submission.phase and phase_of(submission.parent, submission.phase)
  if taken_by and taken_by.state ~= 'cancelled' then
    return { reason = 'phase_taken', taken_by = taken_by.id }
  end
  if is_never_in_time(submission) then
    return { reason = 'overdue' }
  end
end

local function priority_of(submission)
  if submission.priority then
    return submission.priority
  end
  local inherited = submission.parent and call('HGET', written(key('parents')), submission.parent)
  return inherited and tonumber(inherited) or NORMAL
end

local function new_row(submission, standing)
  standing = standing or NONE
  return {
    id = submission.id, task = submission.task, state = 'waiting', priority = priority_of(submission),
    user = submission.user, project = submission.project, parent = submission.parent, phase = submission.phase,
    own_groups = submission.groups, unique_key = submission.unique,
    run_at = submission.delay_ms and step.now + submission.delay_ms or submission.run_at_ms,
    steady_at = submission.delay_ms and step.steady_now() + submission.delay_ms,
    start_by = submission.start_by_ms,
    steady_start_by = submission.start_within_ms and step.steady_now() + submission.start_within_ms,
    overdue_message = submission.overdue_message,
    max_attempts = submission.max_attempts, timeout_ms = submission.timeout_ms, trace = submission.trace, submitted_at = step.now,
    has_contact = submission.contact and true or nil,
    tier = standing.tier, boost = standing.boost ~= 0 and standing.boost or nil,
    iterations_batch = standing.iterations_batch, iterations_granted = standing.iterations_batch,
    iterations_max = standing.iterations_max,
  }
end

local function waits_for_phase(row)
  if not row.phase or row.phase == 1 then
    return false
  end
  local before = phase_of(row.parent, row.phase - 1)
  return not before or before.state ~= 'succeeded'
end

local function day_it_is_due(row)
  return quota.day_of(math.max(row.run_at or step.now, step.now))
end

local function refused(submission, row, standing, is_new)
  -- Full, when it would join the line now or within a minute.
  local is_late = row.run_at and row.run_at >= step.now + CAPPED_DELAY_MS
  if not submission.cap or is_late or waits_for_phase(row) then
    return
  end
  local day = day_it_is_due(row)
  local size = row.user and standing and standing.daily_quota
  local charged, joining = 0, 0
  if is_new then
    charged, joining = quota.would_move(row.user, size, day)
  end
  if size and quota.used_on(row.user, day) + charged >= size then
    return -- it is deferred instead
  end
  local waiting = line.length() + joining
  if waiting >= submission.cap then
    return { reason = 'full', waiting = waiting, cap = submission.cap }
  end
end

local function note_owner(row)
  if row.user then
    row.quota_day = row.quota_day or day_it_is_due(row)
    quota.charge(row.user, row.quota_day, 1)
    local user = users.get(row.user)
    if user then
      user.last_job = tonumber(row.number)
      users.save(row.user, user)
    end
    later('ZADD', key('jobs_of:', row.user), tonumber(row.number), row.number)
  end
  if row.parent then
    call('HSETNX', key('parents'), row.parent, row.priority)
    call('HINCRBY', key('unfinished'), row.parent, 1)
    later('ZADD', key('children:', row.parent), tonumber(row.number), row.number)
    if row.phase then
      local cancelled = phase_of(row.parent, row.phase)
      row.replaces = cancelled and cancelled.number or nil
      later('HSET', key('phases:', row.parent), row.phase, row.number)
    end
  end
  if row.unique_key then
    later('HSET', key('unique'), row.unique_key, row.number)
  end
  groups.mention(tasks.groups_of(row), row.number)
end

local function accept(submission, row, standing, is_new, ignored)
  row.number = step.draw_job_number()
  rows.insert(row, step.blob(submission.payload))
  if submission.contact then
    later('HSET', key('contacts'), row.number, submission.contact)
  end
  if standing and not is_new then
    users.limit_by_standing(standing, row.user, { row.project }, ignored)
  end
  limits.apply(submission.limits, nil, ignored)
  local waits = waits_for_phase(row)
  local size = row.user and standing and standing.daily_quota
  local day = day_it_is_due(row)
  if size and quota.used_on(row.user, day) >= size then
    local later_day = quota.first_day_with_room(row.user, day + 1, size)
    quota.defer(row, later_day, quota.midnight(later_day) + (submission.quota_jitter_ms or 0))
  end
  note_owner(row)
  line.note_start_by(row)
  step.count_state(row.state, 1)
  if waits then
    rows.note_status(row, row.state)
    step.event('waiting', row.id)
  elseif not line.is_due(row) then
    rows.reach(row, 'scheduled')
    line.wait_until_due(row)
    line.tell_time('scheduled', row)
  else
    line.join(row)
  end
  rows.record(outbox.ACCEPTED, row, submission.by)
  step.figure('submitted')
  if submission.by then
    step.audit(submission.by, 'submit', row.id, { task = row.task })
  end
  return accepted(row, standing, nil, #ignored > 0 and ignored or nil)
end

local function admit(submission, number_of)
  if outbox.refuses() then
    return { reason = 'history_full', waiting = outbox.length(), cap = step.counter('outbox_max') }
  end
  local user = submission.user
  local present = user and users.standing(user)
  local standing = submission.standing or present
  local is_new = user and standing and not (present and users.same(standing, present))
  local row = new_row(submission, standing)
  local refusal = refused(submission, row, standing, is_new)
  if refusal then
    return refusal
  end
  local ignored = {}
  if is_new then
    users.apply_standing(user, standing, false, submission.project, ignored)
  end
  local admitted = accept(submission, row, standing, is_new, ignored)
  number_of[row.id] = row.number
  return admitted
end

local function look_up_lanes(numbers)
  -- Those that the jobs will probably join, in one command instead of one for each lane.
  local task_of, before = {}, NONE
  for i, submission in ipairs(arguments.submissions) do
    local is_alike = submission.user == before.user and submission.task == before.task and not submission.groups
    before = submission
    if not numbers[i] and not is_alike and (submission.priority or not submission.parent) then
      local standing = submission.standing or submission.user and users.standing(submission.user) or NONE
      local lane = tasks.lane_of({
        task = submission.task, priority = submission.priority or NORMAL, user = submission.user,
        project = submission.project, tier = standing.tier, parent = submission.parent, own_groups = submission.groups,
      })
      task_of[lane] = submission.task
    end
  end
  lanes.load(task_of)
end

local ids = {}
for i, submission in ipairs(arguments.submissions) do
  ids[i] = submission.id
end
overdue.fail_portion()
catch_up.join_due()
local numbers = rows.numbers(ids)
rows.load(numbers)
if #ids > 1 then
  look_up_lanes(numbers)
end
local answers, number_of = {}, {} -- an id may be there twice in one call
for i, submission in ipairs(arguments.submissions) do
  answers[i] = known_before(submission, numbers[i] or number_of[submission.id]) or admit(submission, number_of)
end
hand_over()
return answer.send({ answers = answers, today = quota.day_of(step.now) })
