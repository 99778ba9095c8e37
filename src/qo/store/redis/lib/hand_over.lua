-- hand_over: give free slots to waiting callers, without passing a job or caller that could go first. Runs at the end
-- of every step that writes, and reads nothing when no caller waits. The contract is at `Store.acquire`.
-- include lib/walk.lua
-- include lib/passing.lua
-- include lib/taking.lua
-- include lib/workers.lua
-- include lib/overdue.lua
-- exports hand_over

local EXPECTED = 4 -- how many a hand-over probably looks at: one freed slot, and who is before its taker

local function free_capacity()
  -- Live workers with free capacity: their tasks, and how many more jobs they can take.
  local free = {}
  for _, worker in ipairs(workers.live()) do
    local takes = {}
    for _, task in ipairs(worker.tasks) do
      takes[task] = true
    end
    local is_alone = suspects.are_there() and taking.is_alone(worker.name, worker.running)
    free[#free + 1] = { takes = takes, left = is_alone and 0 or worker.capacity - worker.running }
  end
  return free
end

local function worker_for(free, task)
  for _, worker in ipairs(free) do
    if worker.left > 0 and worker.takes[task] then
      return worker
    end
  end
end

local function grant(ticket, asked_now)
  tickets.drop(ticket)
  local lease_ms = asked_now and ticket.lease_ms or math.min(ticket.lease_ms, HANDED_OVER_LEASE_MS)
  local token = lease.grant(ticket, lease_ms)
  if not asked_now then
    local slots = lease.slots(lease.get(token)) or NONE
    local detail = { token = step.plain(token), slots = slots, expires_at = step.now + lease_ms }
    step.signal(ticket.worker, GRANTED, ticket.holder, detail)
  end
end

local function examine_ticket(ticket, asked_now, taken)
  if ticket.expires_at <= step.counted_now() and not asked_now then
    tickets.drop(ticket)
    kept.ended(ticket.key)
    return
  end
  local blocked_by = groups.first_without_room(ticket.groups, 1, ticket.key)
  if blocked_by then
    tickets.park(ticket, blocked_by)
    passing.note_aside(ticket)
    return
  end
  if groups.all_have_room_unspoken(ticket.groups, ticket.key) then
    grant(ticket, asked_now)
    passing.note_taker(ticket.key, ticket.groups)
  else
    walk.pass_over(taken)
  end
end

local function leave_for_its_worker(row, names, free, taken)
  local blocked_by = groups.first_without_room(names, GATES + 1, row.key)
  if blocked_by then
    line.park(row, blocked_by)
    passing.note_aside(row)
    return
  end
  if groups.all_have_room_unspoken(names, row.key) then
    local worker = worker_for(free, row.task)
    worker.left = worker.left - 1
    groups.speak_for(names)
    kept.ended(row.key)
  else
    walk.pass_over(taken)
  end
end

local function hand_over(asking)
  lanes.settle()
  if not tickets.are_there()
    or call('EXISTS', written(key('ready:', CALLERS)), written(key('open:', CALLERS))) == 0 then
    return
  end
  local free = free_capacity()
  local names, known = { CALLERS }, {}
  for _, worker in ipairs(free) do
    for task in pairs(worker.takes) do
      if worker.left > 0 and not known[task] then
        known[task] = true
        names[#names + 1] = task
      end
    end
  end
  local all = walk.over(names, EXPECTED)
  local function passes(task)
    return task ~= CALLERS and not (worker_for(free, task) and groups.gates_open_unspoken(task))
  end
  local examined, late = 0, {}
  while examined < step.bounds.examine and walk.has_callers(all) do
    local task, member, taken = walk.next(all, passes)
    if not task then
      break
    end
    local names
    if task == CALLERS then
      local ticket = tickets.get(member)
      names = ticket.groups
      examine_ticket(ticket, asking and asking[member], taken)
    else
      local row = rows.get(member)
      names = tasks.groups_of(row)
      if overdue.is(row) then
        overdue.fail(row)
        late[#late + 1] = row
      else
        leave_for_its_worker(row, names, free, taken)
      end
    end
    examined = examined + groups.looks(names)
  end
  groups.forget_spoken_for()
  lanes.settle()
  passing.end_walk()
  overdue.give_quota_back(late)
  lanes.settle()
end
