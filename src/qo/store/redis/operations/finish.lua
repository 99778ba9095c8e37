-- finish: end leases with their outcomes.
--
-- Arguments  outcomes, each with the number of its result in argv, if it has one
-- Answers    for each, what the job became, or that the token is stale
-- Events     the new state of each job
--
-- The precondition is the lease: a job that is not held under this token is not changed.
-- flags allow-oom
-- include lib/catch_up.lua
-- include lib/averages.lua
-- include lib/answer.lua
-- include lib/wake.lua

local tokens, handed_back, released = {}, {}, {}

local function state_after(row, outcome)
  if row.cancel_wanted and GIVES_WAY_TO_CANCEL[outcome.state] then
    return 'cancelled'
  end
  if outcome.state == 'scheduled' and row.attempts >= row.max_attempts then
    return 'failed'
  end
  return outcome.state
end

local function close_groups(closed)
  for name, closed_ms in pairs(closed or NONE) do
    local group = groups.get(name)
    group.closed_until = step.steady_now() + closed_ms
    groups.store(group)
  end
end

local function leave_worker(row, state)
  line.give_up_place(row)
  rows.reach(row, state)
  row.worker, row.token, row.cancel_wanted = nil, nil, nil
end

local function hand_back(row)
  row.worker, row.token = nil, nil
  row.attempts = row.attempts - 1
  if row.attempts == 0 then
    row.attempts, row.started_at = nil, nil
    line.note_start_by(row)
  end
  handed_back[#handed_back + 1] = row
end

local function schedule_retry(row, outcome)
  leave_worker(row, 'scheduled')
  row.run_at = step.now + outcome.retry_after_ms
  row.steady_at = step.steady_now() + outcome.retry_after_ms
  line.wait_until_due(row)
  row.error = outcome.error
  step.figure('ended:scheduled', step.now - row.started_at)
  line.tell_time('scheduled', row)
end

local function ask_for_confirmation(row, outcome)
  leave_worker(row, 'confirming')
  row.message = outcome.message
  lease.begin_confirming(row)
  step.event('confirming', row.id, { message = row.message or cjson.null })
end

local function release_next_phase(row)
  local number = call('HGET', key('phases:', row.parent), row.phase + 1)
  local following = number and rows.get(number)
  if following and following.state == 'waiting' and not following.due_at then
    if line.is_due(following) then
      released[#released + 1] = following
    else
      line.wait_until_due(following)
    end
  end
end

local function end_with(row, state, outcome)
  lease.end_job(row, state, state == 'failed' and outcome.error or nil)
  if state ~= 'succeeded' then
    return
  end
  if outcome.result then
    later('HSET', key('results'), row.number, step.blob(outcome.result))
    outbox.add_result(row, step.blob(outcome.result))
  end
  for _, average in ipairs(outcome.averages or NONE) do
    averages.move(average, (step.now - row.started_at) / 1000)
  end
  if row.phase then
    release_next_phase(row)
  end
end

local function finish(outcome, row)
  if not row or not lease.is_held(row, outcome.token) then
    if row and row.ended_token == outcome.token and row.ended_state then
      return { state = row.ended_state }
    end
    return { lost = true }
  end
  tokens[#tokens + 1] = row.token
  close_groups(outcome.closed)
  local state = state_after(row, outcome)
  if row.state == 'starting' and PASSES_THROUGH_RUNNING[state] then
    rows.reach(row, 'running')
    step.event('running', row.id)
  end
  if state ~= 'queued' then
    lease.note_attempt(row, lease.get(row.token), state, outcome.error)
  end
  row.message = outcome.message or row.message
  row.ended_token, row.ended_state = row.token, state
  suspects.clear(row)
  rows.save(row)
  if state == 'queued' then
    hand_back(row)
  elseif state == 'scheduled' then
    schedule_retry(row, outcome)
  elseif state == 'confirming' then
    ask_for_confirmation(row, outcome)
  else
    end_with(row, state, outcome)
  end
  return { state = state }
end

local found, answers = rows.named_by(arguments.outcomes), {}
local held = {}
for i, outcome in ipairs(arguments.outcomes) do
  if found[i] and lease.is_held(found[i], outcome.token) then
    held[#held + 1] = outcome.token
  end
end
lease.load(held)
for i, outcome in ipairs(arguments.outcomes) do
  answers[i] = finish(outcome, found[i])
end
lease.finish(tokens)
line.look_up_lanes(handed_back)
for _, row in ipairs(handed_back) do
  row.cancel_wanted = nil
  line.come_back(row, 'handed_back')
end
line.sort_by_joining_order(released)
line.look_up_lanes(released)
line.join_in_order(released)
hand_over()
return answer.send({ answers = answers })
