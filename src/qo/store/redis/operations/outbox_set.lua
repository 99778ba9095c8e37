-- outbox_set: switch the outbox on or off.
--
-- Arguments  most: at how many records it is full, 0 to switch it off and remove it; drops, payloads
-- include lib/outbox.lua
-- include lib/step.lua

local wanted = {
  outbox_max = arguments.most, outbox_drops = arguments.drops, outbox_payloads = arguments.payloads,
}
for name, value in pairs(wanted) do
  if step.counter(name) ~= value then
    step.set_counter(name, value)
  end
end
if arguments.most == 0 and outbox.length() > 0 then
  call('DEL', key('outbox'))
  step.set_counter('outbox_recorded', step.counter('outbox_added'))
end
return step.answer({})
