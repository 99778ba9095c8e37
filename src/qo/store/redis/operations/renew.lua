-- renew: keep leases, tickets and a worker's registration alive.
--
-- Arguments  renewals, worker, instance, tickets
-- Answers    for each lease, and for the registration, its new end, or that it is lost; whether a cancel is wanted. The
--            time
-- Events     none
--
-- A lost lease is reported and never added back: that would make two owners.
-- flags allow-oom
-- include lib/catch_up.lua
-- include lib/workers.lua

local tokens = {}
for i, renewal in ipairs(arguments.renewals) do
  tokens[i] = renewal.token
end
lease.load(tokens)
local numbers = {}
for _, token in ipairs(tokens) do
  local held = lease.get(token)
  numbers[#numbers + 1] = held and held.job
end
rows.load(numbers)

local ends_gap = catch_up.note_time()
for _, holder in ipairs(arguments.tickets or NONE) do
  local ticket = tickets.get(holder)
  if ticket then
    ticket.expires_at = step.counted_now() + ticket.wait_ms
    tickets.save(ticket)
  end
end

local answers = {}
for i, renewal in ipairs(arguments.renewals) do
  local held = lease.get(renewal.token)
  if held and held.holder == renewal.holder then
    local expires_at = lease.end_of(renewal.token)
    if renewal.lease_ms > 0 then
      expires_at = math.max(expires_at, step.counted_now() + renewal.lease_ms)
    end
    expires_at = expires_at + renewal.extend_ms
    step.comes('expiry', expires_at, renewal.token)
    catch_up.note_renewal(renewal.lease_ms, ends_gap)
    local row = held.job and rows.get(held.job)
    answers[i] = { expires_at = expires_at + step.counter('uncounted_ms'), cancel_wanted = row and row.cancel_wanted }
  else
    answers[i] = { lost = true }
  end
end
local registration
if arguments.worker then
  local worker = workers.find(arguments.worker)
  if worker and worker.instance == arguments.instance then
    worker.heard_at, worker.expires_at = step.now, step.now + worker.lifetime_ms
    workers.save(worker)
    registration = { expires_at = worker.expires_at }
  else
    registration = { lost = true }
  end
end
return step.answer({ answers = answers, registration = registration, now = step.now })
