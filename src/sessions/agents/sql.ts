import { maxPageBytes } from "../../base/page.ts";
import { columnBytes, pageQuery } from "../../store/page.ts";
import { content, isAmong, limit, now, rows, sql, type Statement, table } from "../../store/sql.ts";

const agents = table("agent");

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

/** Stores an agent, unless the name exists or the tenant has reached its limit. */
export function createAgent(row: AgentRow, maxAgents: number): Statement {
  const { tenant, name, settings, secrets } = row;
  return sql`
    insert into ${agents} (tenant, name, settings, secrets)
    select ${tenant}, ${name}, ${settings}, ${content(secrets)}
    where (select count(*) from (
      select 1 from ${agents} where tenant = ${tenant} ${limit(maxAgents)}) counted) < ${maxAgents}
    on conflict (tenant, name) do nothing`;
}

/** Replaces the agent if it is still at that revision, else changes nothing. */
export function replaceAgent(row: AgentRow, revision: number): Statement {
  const { tenant, name, settings, secrets } = row;
  return sql`
    update ${agents}
    set settings = ${settings}, secrets = ${content(secrets)}, revision = revision + 1, last_update = ${now}
    where tenant = ${tenant} and name = ${name} and revision = ${revision}`;
}

/** Deletes the whole row, including the secrets. */
export function removeAgent(tenant: string, name: string): Statement {
  return sql`delete from ${agents} where tenant = ${tenant} and name = ${name}`;
}
