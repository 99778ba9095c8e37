-- workers: the live workers, by name.
-- flags no-writes
-- include lib/workers.lua

return step.answer({ workers = workers.live() })
