-- leases: live leases on jobs, by token.
--
-- Arguments  worker
-- Answers    the leases, without payloads
-- flags no-writes
-- include lib/answer.lua

local tokens
if arguments.worker then
  tokens = call('SMEMBERS', key('running:', arguments.worker))
else
  tokens = call('HKEYS', key('leases'))
end
table.sort(tokens)
lease.load(tokens)
local numbers, found = {}, {}
for _, token in ipairs(tokens) do
  numbers[#numbers + 1] = lease.get(token).job
end
rows.load(numbers)
for _, token in ipairs(tokens) do
  local held = lease.get(token)
  if held.job then
    found[#found + 1] = answer.lease(rows.get(held.job), held, lease.end_on_the_clock(token))
  end
end
return step.answer(NONE, found)
