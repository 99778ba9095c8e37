-- advance: record what handlers report while they run.
--
-- Arguments  advances, each with the number of its checkpoint in argv, if it has one
-- Answers    for each, whether it is lost and whether a cancel is wanted
-- Events     running; stage; progress
-- flags allow-oom
-- include lib/lease.lua

local function advance(item, row)
  if not row or not lease.is_held(row, item.token) then
    return { lost = true }
  end
  if row.state == 'starting' then
    rows.reach(row, 'running')
    step.event('running', row.id)
  end
  row.message = item.message or row.message
  if item.stage then
    if item.stage ~= row.stage then
      rows.note_status(row, item.stage)
    end
    row.stage = item.stage
    step.event('stage', row.id, { stage = item.stage, message = item.message or cjson.null })
  end
  if item.progress then
    row.progress = item.progress
    step.event_with('progress', row.id, item.progress)
  end
  if item.iteration and item.iteration > (row.iterations or 0) then
    row.iterations = item.iteration
  end
  rows.save(row)
  if item.checkpoint then
    rows.save_checkpoint(row, step.blob(item.checkpoint))
  end
  return { expires_at = lease.end_on_the_clock(row.token), cancel_wanted = row.cancel_wanted }
end

local found, answers = rows.named_by(arguments.advances), {}
for i, item in ipairs(arguments.advances) do
  answers[i] = advance(item, found[i])
end
return step.answer({ answers = answers })
