-- record_estimate_errors: remember how wrong estimates were, the newest of each task.
--
-- Arguments  task, ratios as text that reads back to the same number, keep
-- include lib/step.lua

local name = key('errors:', arguments.task)
call_in_parts('RPUSH', name, arguments.ratios)
if arguments.keep > 0 then
  call('LTRIM', name, -arguments.keep, -1)
else
  call('DEL', name)
end
return step.answer({})
