-- record_estimate_errors: remember how wrong estimates were, the newest of each task.
--
-- Arguments  task, ratios as text that reads back to the same number, keep
-- include lib/step.lua

for _, ratio in ipairs(arguments.ratios) do
  later('RPUSH', key('errors:', arguments.task), ratio)
end
if arguments.keep > 0 then
  call('LTRIM', written(key('errors:', arguments.task)), -arguments.keep, -1)
else
  call('DEL', written(key('errors:', arguments.task)))
end
return step.answer({})
