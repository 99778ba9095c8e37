#!lua flags=no-writes
-- workers: the live workers, by name.
-- include lib/workers.lua

return step.answer({ workers = workers.live() })
