-- Sends each line of REQUESTS ("METHOD<tab>path<tab>body") once, then stops; wrk keeps the connections busy.
-- A connection that is free while others still wait for their last answer asks for something that costs nothing.

local requests, sent, answered, tried = {}, 0, 0, false
total = 0
written = 0
refused = 0

function setup(thread)
  threads = threads or {}
  table.insert(threads, thread)
end

function init(args)
  local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. os.getenv("RAW_TOKEN") }
  for line in io.lines(args[1]) do
    local method, path, body = line:match("^(%S+)\t(%S+)\t(.*)$")
    table.insert(requests, wrk.format(method, path, headers, body))
  end
  total = #requests
end

function request()
  if not tried then -- wrk looks at one request before it begins, and does not send it
    tried = true
    return requests[1]
  end
  sent = sent + 1
  return requests[sent] or wrk.format("GET", "/version")
end

function response(status, headers, body)
  if sent > total and not body:find("StorageNode", 1, true) then return end
  answered = answered + 1
  if status == 200 then written = written + 1 else refused = refused + 1 end
  if answered == total then wrk.thread:stop() end
end

function done(summary, latency, _)
  local written, refused = 0, 0
  for _, thread in ipairs(threads) do
    written = written + thread:get("written")
    refused = refused + thread:get("refused")
  end
  io.write(string.format(
    '{"written":%d,"refused":%d,"duration_s":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"socket_errors":%d}\n',
    written, refused, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
