// On Postgres, with Drizzle: the order and the task that ships it are stored together, or neither is;
// and what the task writes and its end are stored together, too. DATABASE_URL says which Postgres.
// prints: after the rollback: 0 orders, 0 tasks
// prints: after the commit: 1 orders, 1 tasks
// prints: in the end: 1 shipments, parcel 1
import process from "node:process";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, serial } from "drizzle-orm/pg-core";
import { connect, startPod, task } from "flotilla";
import pg from "pg";

const orders = pgTable("orders", { id: serial().primaryKey() });
const shipments = pgTable("shipments", { orderId: integer() });

const url = process.env["DATABASE_URL"]!;
const pool = new pg.Pool({ connectionString: url });
const db = drizzle(pool);
await db.execute("create table if not exists orders (id serial primary key)");
await db.execute(`create table if not exists shipments ("orderId" integer)`);

const ship = task<{ order: number }>("ship");
const shipper = ship.handle(({ input, complete }) =>
  db.transaction(async (tx) => {
    await tx.insert(shipments).values({ orderId: input.order });
    return complete(tx, `parcel ${await db.$count(orders)}`);
  }),
);

const flotilla = connect(url);
const refused = new Error("the payment was refused");

async function order(pays: boolean) {
  return db.transaction(async (tx) => {
    const [made] = await tx.insert(orders).values({}).returning();
    const enqueued = await flotilla.enqueue(ship, { order: made!.id }, { tx });
    if (!pays) throw refused;
    return enqueued;
  });
}

async function show(when: string): Promise<void> {
  const { byStatus } = await flotilla.tasks.stats();
  console.log(`after the ${when}: ${await db.$count(orders)} orders, ${byStatus.pending} tasks`);
}

await flotilla.ping();
await order(false).catch((error) => {
  if (error !== refused) throw error;
});
await show("rollback");
const enqueued = await order(true);
await show("commit");

const pod = await startPod({ store: url, use: [shipper] });
const parcel = await pod.waitFor(enqueued);
console.log(`in the end: ${await db.$count(shipments)} shipments,`, parcel);

await pod.stop();
await flotilla.close();
await pool.end();
