import { Agent, request } from "node:http";
import process from "node:process";
import { peer } from "../../systems/peer.ts";
import type { Payload } from "../../systems/system.ts";
import { type Entered, type FlowSystem, type Runs, steps } from "./system.ts";

type Context = { run(name: string, step: () => Promise<void>): Promise<void> };

type Library = {
  service(definition: object): object;
  serve(options: { services: object[]; port: number }): Promise<number>;
};

// Else every invocation is logged.
process.env["RESTATE_LOGGING"] = "ERROR";
const { service, serve: listen } = await peer<Library>("@restatedev/restate-sdk");

/** Restate: a server that keeps the journal, and a service that it calls over HTTP. */
export const system: FlowSystem = {
  async open(url, _settings, entered) {
    const { admin, servicePort } = placeOf(url);
    await serve(servicePort, entered);
    await register(admin, servicePort);
    return client(url);
  },
  client: (url) => Promise.resolve(client(url)),
};

async function serve(port: number, entered: Entered): Promise<void> {
  const bench = service({
    name: "bench",
    handlers: {
      async run(context: Context, { number }: Payload): Promise<void> {
        for (let step = 0; step < steps; step++) {
          await context.run(`step ${step}`, async () => entered(number, step));
        }
      },
    },
  });
  await listen({ services: [bench], port });
}

/** Tells the server where the service is, unless a process before this one has done so. */
async function register(admin: string, port: number): Promise<void> {
  const asked = await fetch(`${admin}/deployments`);
  const { deployments } = (await asked.json()) as { deployments: unknown[] };
  if (deployments.length > 0) return;
  const answer = await fetch(`${admin}/deployments`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ uri: `http://127.0.0.1:${port}` }),
  });
  if (!answer.ok) throw new Error(`Restate doesn't take the service: ${await answer.text()}`);
}

function client(url: string): Runs {
  const { ingress } = placeOf(url);
  const agent = new Agent({ keepAlive: true });
  const post = (path: string) => (payload: Payload) =>
    new Promise<void>((resolve, reject) => {
      const headers = { "content-type": "application/json" };
      const sent = request(`${ingress}${path}`, { method: "POST", agent, headers }, (answer) => {
        answer.resume();
        answer.once("error", reject);
        answer.once("end", () => {
          const { statusCode = 0 } = answer;
          if (statusCode < 300) resolve();
          else reject(new Error(`Restate answered ${statusCode} to ${path}`));
        });
      });
      sent.once("error", reject);
      sent.end(JSON.stringify(payload));
    });
  return { start: post("/bench/run/send"), finish: post("/bench/run") };
}

/** What `bench/servers/restate.ts` says about where everything is. */
function placeOf(url: string) {
  const { origin, searchParams } = new URL(url);
  return {
    ingress: origin,
    admin: `http://127.0.0.1:${searchParams.get("admin")}`,
    servicePort: Number(searchParams.get("service")),
  };
}
