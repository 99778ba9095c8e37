-- Claiming for one worker: the first jobs in line whose every group has a free slot beside those that turns keep.
--
-- No scan: jobs that are known to be blocked are not candidates, so a claim costs only the jobs that it takes
-- and those that it finds blocked for the first time.
-- include lib/hand_over.lua
-- include lib/passing.lua
-- include lib/answer.lua
-- exports claiming

local claiming = {}

local function without_repetitions(names)
  local once, is_known = {}, {}
  for _, name in ipairs(names) do
    if not is_known[name] then
      is_known[name] = true
      once[#once + 1] = name
    end
  end
  return once
end

function claiming.take(worker, task_names, capacity, lease_ms, claim, most_suspects)
  -- Returns the jobs taken, whether another claim may find more, and the bytes of its reply.
  local taker = taking.taker(worker, most_suspects)
  local all = walk.over(taking.sources(taker, without_repetitions(task_names)), capacity)
  local function passes(source)
    return taking.passes(taker, source)
  end
  local taken, late, examined, taken_bytes, more = {}, {}, 0, 0, false
  while #taken < capacity do
    if examined >= step.bounds.examine or taken_bytes >= step.bounds.claim_bytes then
      more = walk.first(all, passes) ~= nil
      break
    end
    local _, number = walk.next(all, passes)
    if not number then
      break
    end
    local row = rows.get(number)
    local wanted = tasks.groups_of(row)
    examined = examined + groups.looks(wanted)
    local is_late = overdue.is(row)
    local blocked_by = not is_late and groups.first_without_room(wanted, GATES + 1, row.key)
    if is_late then
      overdue.fail(row)
      late[#late + 1] = row
    elseif blocked_by then
      line.park(row, blocked_by)
      passing.note_aside(row)
    elseif not taking.may_take(taker, row.suspicion) then
      break
    else
      local held = lease.claim_job(row, wanted, worker, claim, lease_ms)
      taken[#taken + 1] = { row = row, held = held, expires_at = step.now + lease_ms }
      taken_bytes = taken_bytes + rows.size(row)
      passing.note_taker(row.key, wanted)
      if taking.note(taker, row.suspicion) then
        break
      end
    end
  end
  passing.end_walk()
  more = overdue.give_quota_back(late) or more
  hand_over()
  return taken, more, taken_bytes
end

function claiming.taken_before(claim)
  -- The jobs that this claim has taken and still holds.
  local taken = {}
  for i, token in ipairs(lease.of_claim(claim)) do
    local held = lease.get(token)
    taken[i] = { row = rows.get(held.job), held = held, expires_at = lease.end_on_the_clock(token) }
  end
  return taken
end

function claiming.leases(taken)
  -- The leases as they are in a reply.
  local numbers, leases = {}, {}
  for i, each in ipairs(taken) do
    numbers[i] = each.row.number
  end
  local payloads, checkpoints = rows.contents(numbers)
  for i, each in ipairs(taken) do
    leases[i] = answer.lease(each.row, each.held, each.expires_at, payloads[i], checkpoints[i])
  end
  return leases
end
