import { FlotillaError } from "../../base/errors.ts";
import { checkUnredacted } from "../../redaction/redactor.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { route, type Route } from "../route.ts";
import { agentSpecs } from "./agents.schema.ts";
import { withoutUndefined } from "./tasks.ts";

// Headers and their encryption take more bytes than most settings.
const maxBytes = 128 * 1024;

/** Agents: those in code can be read, stored ones can also be created, changed and removed. */
export function agentRoutes({ flotilla }: { flotilla: Pick<Flotilla, "agents"> }): Route[] {
  const { agents } = flotilla;
  return [
    route(agentSpecs.list).to(async ({ caller, query }) => {
      return { status: 200, body: await agents.list(caller.tenant, withoutUndefined(query)) };
    }),
    route(agentSpecs.create, { maxBytes }).to(async ({ caller, body }) => {
      const { name, ...settings } = await body();
      const agent = await agents.create(caller.tenant, name, withoutUndefined(settings));
      return { status: 201, body: { agent } };
    }),
    route(agentSpecs.get).to(async ({ caller, params: { name } }) => {
      const agent = await agents.get(caller.tenant, name);
      if (!agent) throw missing(name);
      return { status: 200, body: { agent } };
    }),
    route(agentSpecs.replace, { maxBytes }).to(async ({ caller, params: { name }, body }) => {
      const given = withoutUndefined(await body());
      checkUnredacted("settings", given.settings);
      const agent = await agents.replace(caller.tenant, name, given);
      return { status: 200, body: { agent } };
    }),
    route(agentSpecs.remove).to(async ({ caller, params: { name } }) => {
      if (!(await agents.remove(caller.tenant, name))) throw missing(name);
      return { status: 200, body: { status: "removed" } };
    }),
  ];
}

function missing(name: string): FlotillaError {
  return new FlotillaError("not_found", `there is no agent ${name.slice(0, 200)}`);
}
