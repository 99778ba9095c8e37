-- set_paused: stop or resume starting in a group, beside its limit.
--
-- Arguments  group, paused, by, undoes
-- Answers    refused: changed_since
-- Events     paused or resumed, where changed. Audit "pause" or "resume"
-- flags allow-oom
-- include lib/hand_over.lua
-- include lib/wake.lua
-- include lib/undoing.lua

if arguments.undoes and not undoing.entry(arguments.group, arguments.undoes) then
  return undoing.refuse(arguments.group, arguments.undoes)
end
local group = groups.get(arguments.group)
if (group.paused or false) ~= arguments.paused then
  group.paused = arguments.paused or nil
  groups.store(group)
  step.event(arguments.paused and 'paused' or 'resumed', group.name)
  step.audit(arguments.by, arguments.paused and 'pause' or 'resume', group.name, {})
end
hand_over()
return step.answer({})
