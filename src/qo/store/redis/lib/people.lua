-- Changes by people: find the jobs, and return them after the change.
-- include lib/users.lua
-- include lib/answer.lua
-- include lib/wake.lua
-- exports people

local people = {}

function people.unfinished(parent)
  -- A parent's unfinished jobs by phase, then those without one; nil when there is no such parent.
  if not call('HGET', key('parents'), parent) then
    return nil
  end
  local found = rows.unfinished(key('children:', parent))
  table.sort(found, function(a, b)
    local one, other = a.phase or math.huge, b.phase or math.huge
    if one ~= other then
      return one < other
    end
    return a.number < b.number
  end)
  return found
end

function people.wanted(arguments)
  -- The job or the parent's jobs that the arguments name; otherwise the refusal.
  if arguments.parent then
    local found = people.unfinished(arguments.parent)
    return found, not found and step.refuse('no_parent')
  end
  local row = rows.find(arguments.job_id)
  return row and { row }, not row and step.refuse('no_job', { id = arguments.job_id })
end

function people.wrong_state(row)
  return step.refuse('wrong_state', { id = row.id, state = row.state })
end

function people.answer(changed)
  local jobs = {}
  for i, row in ipairs(changed) do
    jobs[i] = answer.job(row)
  end
  return answer.send({ jobs = jobs })
end
