import { noEntry, type WriteEntry } from "../../audit/act.ts";
import { maxPageBytes } from "../../base/page.ts";
import { encodedMark } from "../../store/codec/codec.ts";
import { columnBytes, pageQuery } from "../../store/page.ts";
import {
  contentValue,
  forUpdate,
  isAmong,
  limit,
  now,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import { noSecrets } from "./secrets.ts";

const agents = table("agent");
const maxCounted = 10_000;
const withoutSecrets = JSON.stringify({ agent: noSecrets, compaction: noSecrets });

const columns = sql`tenant, name, settings, secrets, revision, created_at, last_update`;

export type AgentRow = {
  readonly tenant: string;
  readonly name: string;
  /** JSON text, without secrets. */
  readonly settings: string;
  readonly secrets: string;
};

export function readAgents(tenant: string, names: readonly string[]): Statement {
  const asked = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  return sql`
    select ${columns} from ${agents} agent
    where tenant = ${tenant}
      and ${isAmong(sql`select asked.name from ${asked} asked`, sql`agent.name`)}`;
}

/** Stored agents of any tenant that have one of these names. */
export function storedByNames(names: readonly string[], maxRows: number): Statement {
  const asked = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  return sql`
    select tenant, name from ${agents} agent
    where ${isAmong(sql`select asked.name from ${asked} asked`, sql`agent.name`)}
    order by tenant, name ${limit(maxRows)}`;
}

/** Counts stored agents with secrets that no codec has encoded, up to 10,000. */
export function countPlainSecrets(): Statement {
  return sql`
    select count(*) as agents from (
      select 1 from ${agents}
      where substr(secrets, 1, 1) <> ${encodedMark} and secrets not in ('{}', ${withoutSecrets})
      ${limit(maxCounted)}) counted`;
}

export function listAgents(tenant: string, after: string, count: number): Statement {
  const { begin, keys, found } = pageQuery({
    key: sql`name`,
    order: "asc",
    from: sql`from ${agents} where tenant = ${tenant} and name > ${after}`,
    bytes: sql`500 + ${columnBytes(sql`settings`)} + ${columnBytes(sql`secrets`)}`,
    limit: count,
    maxBytes: maxPageBytes,
  });
  return sql`${begin}
    select ${columns}, ${found} from ${agents}
    where tenant = ${tenant} and ${isAmong(keys, sql`name`)} order by name`;
}

/**
 * Stores an agent with its entry in the audit, unless the name exists or the tenant has reached its limit. No
 * other transaction sees the revision 0, so it marks a row that this one has inserted.
 */
export function createAgent(
  { tenant, name, settings, secrets }: AgentRow,
  maxAgents: number,
  entry: WriteEntry = noEntry,
): Statement[] {
  const isInserted = sql`tenant = ${tenant} and name = ${name} and revision = 0`;
  return [
    sql`
      insert into ${agents} (tenant, name, settings, secrets, revision)
      select ${tenant}, ${name}, ${settings}, ${contentValue(secrets)}, 0
      where (select count(*) from (
        select 1 from ${agents} where tenant = ${tenant} ${limit(maxAgents)}) counted) < ${maxAgents}
      on conflict (tenant, name) do nothing`,
    ...entry({ when: sql`from ${agents} where ${isInserted}`, after: '{"revision":1}' }),
    sql`update ${agents} set revision = 1 where ${isInserted}`,
  ];
}

/** Replaces the agent if it is still at that revision, else changes nothing. */
export function replaceAgent(
  row: AgentRow,
  revision: number,
  entry: WriteEntry = noEntry,
): Statement[] {
  const { tenant, name, settings, secrets } = row;
  const asSeen = sql`tenant = ${tenant} and name = ${name} and revision = ${revision}`;
  return [
    sql`select name from ${agents} where ${asSeen} ${forUpdate}`,
    ...entry({
      when: sql`from ${agents} where ${asSeen}`,
      before: JSON.stringify({ revision }),
      after: JSON.stringify({ revision: revision + 1 }),
    }),
    sql`
      update ${agents}
      set settings = ${settings}, secrets = ${contentValue(secrets)}, revision = revision + 1, last_update = ${now}
      where ${asSeen}`,
  ];
}

/** Deletes the whole row, including the secrets. The first answer has the row if it existed. */
export function removeAgent(
  tenant: string,
  name: string,
  entry: WriteEntry = noEntry,
): Statement[] {
  const isNamed = sql`tenant = ${tenant} and name = ${name}`;
  return [
    sql`select name from ${agents} where ${isNamed} ${forUpdate}`,
    ...entry({
      when: sql`from ${agents} where ${isNamed}`,
      before: sql`'{"revision":' || cast(revision as text) || '}'`,
    }),
    sql`delete from ${agents} where ${isNamed}`,
  ];
}
