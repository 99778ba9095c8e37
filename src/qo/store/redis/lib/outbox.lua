-- The outbox: what the history's recorder has to write, added in the same step as the change itself.
--
-- A record is about a job (accepted, an attempt ended, the job ended) or an audit entry. All records of a step are one
-- entry of the stream, under the id of the last; the ids of the others are the numbers before it. An id is the time in
-- microseconds, or a little more, so that ids do not come back when the server has lost its newest data.
-- `history/records.py` reads them.
-- include lib/counters.lua
-- exports outbox

local outbox = { ACCEPTED = 1, ATTEMPT = 2, ENDED = 4 }
local LONGEST_BYTES = 2048 -- of a record, without payload and result
local LONGEST_TEXT_BYTES = 300 -- of each text of a record that is shortened
local AUDIT, JOB = 0, 1
local LIST_OF_SEVEN, LONG_LIST, BYTES, NOTHING = '\151', '\221', '\198', '\192'

local records
local of_job -- by number: the job's record of this step

at_the_beginning[#at_the_beginning + 1] = function()
  records, of_job = {}, {}
end

function outbox.is_on()
  return step.counter('outbox_max') > 0
end

function outbox.length()
  return step.counter('outbox_added') - step.counter('outbox_recorded')
end

function outbox.is_full()
  return outbox.length() + #records >= step.counter('outbox_max')
end

function outbox.refuses()
  -- Whether a submit has to be refused, because nobody records what was accepted before.
  return outbox.is_on() and not step.counter('outbox_drops') and outbox.is_full()
end

local function add(record)
  if step.counter('outbox_drops') and outbox.is_full() then
    step.set_counter('outbox_dropped', step.counter('outbox_dropped') + 1)
  else
    records[#records + 1] = record
  end
  return record
end

function outbox.add_audit(entry)
  add({ audit = entry })
end

function outbox.add_job(what, row, by, groups, payload)
  -- A job has one record in a step, with all that happened to it.
  local record = of_job[row.number]
  if not record then
    record = add({ row = row })
    of_job[row.number] = record
  end
  record[what] = true
  record.by, record.groups = record.by or by, groups
  if step.counter('outbox_payloads') then
    record.payload = record.payload or payload
  end
end

function outbox.add_result(row, result)
  local record = of_job[row.number]
  if record and step.counter('outbox_payloads') then
    record.result = result
  end
end

-- --- packing --------------------------------------------------------------------------------------------------

local function shortened(text)
  -- Cut before a character, never within one.
  if not text or #text <= LONGEST_TEXT_BYTES then
    return text
  end
  local last = LONGEST_TEXT_BYTES
  while last > 0 and text:byte(last + 1) >= 0x80 and text:byte(last + 1) < 0xC0 do
    last = last - 1
  end
  return text:sub(1, last) .. '…'
end

local function short_row(row)
  -- What the history has no room for. A job may have many groups and long messages.
  local short = {}
  for name, value in pairs(row) do
    short[name] = value
  end
  short.states, short.own_groups, short.progress, short.trace, short.overdue_message = nil, nil, nil, nil, nil
  short.message = shortened(row.message)
  if row.error then
    local error = cjson.decode(row.error)
    local debug_id = type(error.debug_id) == 'string' and error.debug_id or nil
    short.error = cjson.encode({ message = shortened(error.message), debug_id = debug_id })
  end
  if row.past_attempts then
    local last = cjson.decode(row.past_attempts:match('[^\n]*$'))
    short.past_attempts = cjson.encode({ last[1], last[2], {}, last[4], last[5], last[6], last[7] })
  end
  return cmsgpack.pack(short)
end

local function bytes(content)
  return content and BYTES .. struct.pack('>I4', #content) .. content or NOTHING
end

local function what_happened(record)
  local sum = 0
  for _, what in ipairs({ outbox.ACCEPTED, outbox.ATTEMPT, outbox.ENDED }) do
    sum = sum + (record[what] and what or 0)
  end
  return sum
end

local function packed_job(record)
  local what = what_happened(record)
  local row = outbox.pack_row(record.row)
  local before = cmsgpack.pack(JOB, what, record.by or false, record.groups or false)
  if #before + #row > LONGEST_BYTES then
    row, before = short_row(record.row), cmsgpack.pack(JOB, what, record.by or false, false)
  end
  return LIST_OF_SEVEN .. before .. bytes(record.payload) .. bytes(record.result) .. row
end

local function packed_audit(entry)
  local id, at, by, action, subject, detail = unpack(entry)
  if #detail > LONGEST_BYTES / 2 then
    detail = '{}'
  end
  return LIST_OF_SEVEN .. cmsgpack.pack(AUDIT, id, at, by, action, subject, detail)
end

function outbox.write()
  local count = #records
  if count == 0 then
    return
  end
  local texts = { LONG_LIST .. struct.pack('>I4', count) }
  for i, record in ipairs(records) do
    texts[i + 1] = record.audit and packed_audit(record.audit) or packed_job(record)
  end
  local id = math.max(step.counter('outbox_newest') + count, step.now * 1000 + count - 1)
  local added = step.counter('outbox_added') + count
  step.set_counter('outbox_newest', id)
  step.set_counter('outbox_added', added)
  call('XADD', key('outbox'), digits(id) .. '-0', 'records', table.concat(texts), 'added', digits(added))
end
