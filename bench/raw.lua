-- Sends each line of a file ("METHOD<tab>path<tab>body") once and prints how long that took, as JSON.
-- wrk itself would go on until its time is over: whoever reads the line ends it.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long s; long ns; } bench_time;
  int clock_gettime(int clock, bench_time *time);
]]
local MONOTONIC = 1

local requests, sent, answered, written, tried = {}, 0, 0, 0, false
local began

local function now()
  local time = ffi.new("bench_time")
  ffi.C.clock_gettime(MONOTONIC, time)
  return tonumber(time.s) + tonumber(time.ns) / 1e9
end

function init(args)
  local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. os.getenv("RAW_TOKEN") }
  for line in io.lines(args[1]) do
    local method, path, body = line:match("^(%S+)\t(%S+)\t(.*)$")
    table.insert(requests, wrk.format(method, path, headers, body))
  end
end

function request()
  if not tried then -- wrk looks at one request before it begins, and does not send it
    tried = true
    return requests[1]
  end
  began = began or now()
  sent = sent + 1
  -- A connection that is free while others wait for their last answer asks for something that costs nothing.
  return requests[sent] or wrk.format("GET", "/version")
end

function response(status, headers, body)
  if sent > #requests and not body:find("StorageNode", 1, true) then return end
  answered = answered + 1
  if status == 200 then written = written + 1 end
  if answered == #requests then
    print(string.format('{"written":%d,"duration_s":%.6f}', written, now() - began))
    io.stdout:flush()
    wrk.thread:stop()
  end
end
