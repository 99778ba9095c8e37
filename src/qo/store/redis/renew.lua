-- renew: keep leases, tickets and a worker's registration alive.
--
-- Arguments  renewals, worker, instance, tickets
-- Answers    for each lease, and then for the registration, its new end, or that it is lost; whether a cancel is wanted
-- Events     none
--
-- A lost lease is reported and never added back: that would make two owners.
-- flags allow-oom
-- include lib/catch_up.lua
-- include lib/workers.lua

local tokens, longest = {}, 0
for i, renewal in ipairs(arguments.renewals) do
  tokens[i] = renewal.token
  longest = math.max(longest, renewal.lease_ms)
end
lease.load(tokens)
local numbers = {}
for _, token in ipairs(tokens) do
  local held = lease.get(token)
  numbers[#numbers + 1] = held and held.job
end
rows.load(numbers)

if longest > 0 then
  catch_up.note_time(longest)
end
for _, holder in ipairs(arguments.tickets or NONE) do
  local ticket = tickets.get(holder)
  if ticket then
    ticket.expires_at = step.now + ticket.wait_ms
    tickets.save(ticket)
  end
end

local answers = {}
for i, renewal in ipairs(arguments.renewals) do
  local held = lease.get(renewal.token)
  if held and held.holder == renewal.holder then
    local expires_at = lease.end_of(renewal.token)
    if renewal.lease_ms > 0 then
      expires_at = math.max(expires_at, step.now + renewal.lease_ms)
    end
    expires_at = expires_at + renewal.extend_ms
    step.comes('expiry', expires_at, renewal.token)
    local row = held.job and rows.get(held.job)
    answers[i] = { expires_at = expires_at, cancel_wanted = row and row.cancel_wanted }
  else
    answers[i] = { lost = true }
  end
end
if arguments.worker then
  local worker = workers.find(arguments.worker)
  if worker and worker.instance == arguments.instance then
    worker.heard_at, worker.expires_at = step.now, step.now + worker.lifetime_ms
    workers.save(worker)
    answers[#answers + 1] = { expires_at = worker.expires_at }
  else
    answers[#answers + 1] = { lost = true }
  end
end
return step.answer({ answers = answers })
