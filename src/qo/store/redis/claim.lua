-- claim: take the first jobs in line whose every group has a free slot.
--
-- Arguments  worker, tasks, places, lease_ms, claim_id
-- Answers    the leases, and whether a bound was reached
-- Events     starting; those of catch_up
--
-- No scan: what is known to be blocked is not among the candidates, so the cost is that of the jobs taken
-- and of those found blocked for the first time.
-- flags allow-oom
-- include lib/catch_up.lua
-- include lib/answer.lua
-- include lib/wake.lua

local function contents(taken)
  -- Payloads and checkpoints of all that were taken, by one look each.
  local numbers = {}
  for i, each in ipairs(taken) do
    numbers[i] = each.row.number
  end
  if #numbers == 0 then
    return {}, {}
  end
  return call('HMGET', key('payloads'), unpack(numbers)), call('HMGET', key('checkpoints'), unpack(numbers))
end

local function send(taken, more)
  local payloads, checkpoints = contents(taken)
  local leases = {}
  for i, each in ipairs(taken) do
    answer.note_task(each.row.task)
    leases[i] = {
      row = answer.blob(rows.packed(each.row)), token = each.row.token, expires_at = each.expires_at,
      slots = each.slots, payload = answer.blob(payloads[i]),
      checkpoint = checkpoints[i] and answer.blob(checkpoints[i]) or nil,
    }
  end
  return answer.send({ leases = leases, more = more })
end

local known = {}
for i, token in ipairs(lease.of_claim(arguments.claim_id)) do
  local held = lease.get(token)
  known[i] = { row = rows.get(held.job), expires_at = lease.end_of(token), slots = lease.slots(held) }
end
if #known > 0 then
  return send(known, false)
end

local _, more = catch_up.run(arguments.lease_ms)
wake.forget(arguments.worker)
local names, is_known = {}, {}
for _, task in ipairs(arguments.tasks) do
  if not is_known[task] then
    is_known[task] = true
    names[#names + 1] = task
  end
end
local all = walk.over(names, arguments.places)
local function passes(task)
  return not groups.gates_open(task)
end
local taken, examined = {}, 0
while #taken < arguments.places do
  if examined == step.bounds.examine then
    more = more or walk.first(all, passes) ~= nil
    break
  end
  local _, number = walk.next(all, passes)
  if not number then
    break
  end
  examined = examined + 1
  local row = rows.get(number)
  local wanted = tasks.groups_of(row)
  groups.load(wanted)
  local blocked_by = groups.first_without_room(wanted, GATES + 1)
  if blocked_by then
    line.park(row, blocked_by)
  else
    local held = lease.claim_job(row, wanted, arguments.worker, arguments.claim_id, arguments.lease_ms)
    taken[#taken + 1] = { row = row, expires_at = step.now + arguments.lease_ms, slots = lease.slots(held) }
  end
end
hand_over()
return send(taken, more)
