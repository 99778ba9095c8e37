-- outbox_status: how much the outbox holds.
--
-- Answers    most (0: it is off), drops, payloads, length, dropped, the age of its oldest record in milliseconds
-- flags no-writes
-- include lib/outbox.lua
-- include lib/step.lua

local oldest = call('XRANGE', key('outbox'), '-', '+', 'COUNT', 1)[1]
local age_ms = oldest and math.max(0, step.now - math.floor(tonumber(oldest[1]:match('^%d+')) / 1000)) or 0
return step.answer({
  most = step.counter('outbox_max'), drops = step.counter('outbox_drops'), payloads = step.counter('outbox_payloads'),
  length = outbox.length(), dropped = step.counter('outbox_dropped'), age_ms = age_ms,
})
