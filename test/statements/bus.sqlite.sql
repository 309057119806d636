-- src/bus/sql.ts: insertEnvelopes
insert into flotilla_bus_message (address, sender, seq, body, at)
select address, sender, seq, body, now_ms() from (select value ->> 0 as address, value ->> 1 as sender, value ->> 2 as seq, value ->> 3 as body from jsonb_each(?)) fresh where true
on conflict do nothing
-- values: ["[[\"pod-1\",\"pod-2\",3,\"[]\"]]"]

-- src/bus/sql.ts: readEnvelopes
select sender, seq, body from flotilla_bus_message
where address = ?
order by sender, seq limit cast(? as integer)
-- values: ["pod-1",10]

-- src/bus/sql.ts: deleteEnvelopes
delete from flotilla_bus_message
where address = ?
  and (sender, seq) in (select done.sender, done.seq from (select value ->> 0 as sender, value ->> 1 as seq from jsonb_each(?)) done)
-- values: ["pod-1","[[\"pod-2\",3]]"]

-- src/bus/sql.ts: pruneEnvelopes
delete from flotilla_bus_message
where rowid in (select rowid from flotilla_bus_message where at < now_ms() - ? limit cast(? as integer))
-- values: [60000,100]

-- src/bus/sql.ts: readBusSecret
select secret from flotilla_bus_secret limit cast(? as integer)
-- values: [1]
