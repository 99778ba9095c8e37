-- observed: averages, and how wrong the estimates of tasks were.
--
-- Arguments  names, tasks
-- Answers    of each name its value, square and count, or false; of each task the newest errors, oldest first
-- flags no-writes
-- include lib/step.lua

local found, errors = {}, {}
for i, text in ipairs(fields_of(key('averages'), arguments.names)) do
  found[i] = text and cmsgpack.unpack(text)
end
for i, task in ipairs(arguments.tasks) do
  errors[i] = call('LRANGE', key('errors:', task), 0, -1)
end
return step.answer({ averages = found, errors = errors })
