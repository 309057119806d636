// Per-tenant limits: one customer's flood neither starves the others nor goes past its limit.
// prints: among the first four: acme, bolt, coop
// prints: most at once of acme: 2
// prints: all done: acme 12, bolt 4, coop 4
import { setTimeout as delay } from "node:timers/promises";
import { connect, startPod, task } from "flotilla";

const store = "sqlite:tenants.db";
const begun: string[] = [];
let running = 0;
let most = 0;

const embed = task<{ tenant: string }>("embed", {}, async ({ input: { tenant } }) => {
  begun.push(tenant);
  if (tenant === "acme") most = Math.max(most, ++running);
  await delay(100);
  if (tenant === "acme") running--;
});

await using flotilla = connect(store);
await flotilla.tasks.limits.set("tenant/acme", 2);

// Acme comes first and with the most.
const flood = await enqueue("acme", 12);
const others = [...(await enqueue("bolt", 4)), ...(await enqueue("coop", 4))];

// It claims four at a time: the tenants take turns, and acme gets no more than its two.
await using _pod = await startPod({ store, use: [embed], slots: 10 });
await Promise.all([...flood, ...others].map((each) => flotilla.waitFor(each)));

console.log(`among the first four: ${[...new Set(begun.slice(0, 4))].toSorted().join(", ")}`);
console.log(`most at once of acme: ${most}`);
console.log(`all done: ${counts(begun)}`);

async function enqueue(tenant: string, tasks: number) {
  const inputs = Array.from({ length: tasks }, () => ({ tenant }));
  return flotilla.enqueueMany(embed, inputs, { tenant });
}

function counts(tenants: string[]): string {
  const count = (name: string) => tenants.filter((tenant) => tenant === name).length;
  return ["acme", "bolt", "coop"].map((name) => `${name} ${count(name)}`).join(", ");
}
