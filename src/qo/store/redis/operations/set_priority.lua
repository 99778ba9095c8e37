-- set_priority: of a job that waits, or of a parent and all its unfinished jobs. Places are kept.
--
-- Arguments  priority, job_id or parent, by, undoes
-- Answers    the jobs as they are now; refused: no_job, no_parent, wrong_state, changed_since
-- Events     priority, each job. Audit "priority", each job
-- flags allow-oom
-- include lib/people.lua
-- include lib/undoing.lua

local wanted, refusal = people.wanted(arguments)
if refusal then
  return refusal
end
if arguments.parent then
  call('HSET', key('parents'), arguments.parent, arguments.priority)
elseif not WAITS[wanted[1].state] then
  return people.wrong_state(wanted[1])
elseif arguments.undoes and not undoing.of_job(wanted[1], arguments.undoes) then
  return undoing.refuse(wanted[1].id, arguments.undoes)
end
line.look_up_lanes(wanted)
for _, row in ipairs(wanted) do
  local detail = { priority = arguments.priority, from = row.priority }
  row.priority = arguments.priority
  rows.save(row)
  if row.key then
    local order_key = line.order_key(row.priority, line.place_of(row.key))
    line.note_displacement(row, 'priority', order_key)
    if HELD[row.state] then
      row.key = order_key
    else
      turns.begin_anew(row)
      line.enter_again(row, order_key)
    end
  end
  step.event('priority', row.id, detail)
  step.audit(arguments.by, 'priority', row.id, detail)
end
hand_over()
return people.answer(wanted)
