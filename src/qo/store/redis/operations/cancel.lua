-- cancel: a job that waits at once, one that runs on request; of a parent all that is unfinished.
--
-- Arguments  job_id or parent, message, by
-- Answers    the jobs as they are now; refused: no_job, no_parent, wrong_state
-- Events     cancelled or cancel_wanted; queued or rescheduled for those that moved forward. Audit "cancel"
-- flags allow-oom
-- include lib/people.lua

local never_started = {}

local function cancel(row)
  row.message = arguments.message or row.message
  rows.save(row)
  if HELD[row.state] then
    row.cancel_wanted = true
    step.signal(row.worker, CANCEL_WANTED, row.id)
    return
  end
  lease.end_job(row, 'cancelled')
  if not row.started_at then
    never_started[#never_started + 1] = row
  end
end

local wanted, refusal = people.wanted(arguments)
if refusal then
  return refusal
end
if arguments.job_id and ENDED[wanted[1].state] and wanted[1].state ~= 'cancelled' then
  return people.wrong_state(wanted[1])
end
line.look_up_lanes(wanted)
for _, row in ipairs(wanted) do
  if row.state ~= 'cancelled' then
    local detail = { message = arguments.message or cjson.null, from = row.state }
    cancel(row)
    step.audit(arguments.by, 'cancel', row.id, detail)
  end
end
overdue.give_quota_back(never_started)
hand_over()
return people.answer(wanted)
