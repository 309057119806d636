// A task that ends in your own transaction: what it wrote and its end are there together, or neither.
// prints: attempt 1 finds 1 orders, 0 shipments
// prints: attempt 2 finds 1 orders, 0 shipments
// prints: in the end: 1 orders, 1 shipments, and the task is completed: parcel 7
import { DatabaseSync } from "node:sqlite";
import { startPod, task } from "flotilla";

const shop = new DatabaseSync("shop.db", { timeout: 5_000 });
shop.exec("create table if not exists orders (id integer primary key)");
shop.exec("create table if not exists shipments (order_id integer)");

let turn: Promise<unknown> = Promise.resolve();

const ship = task<{ order: number }>(
  "ship",
  { backoff: { baseMs: 10 } },
  async ({ input, attempt, complete }) => {
    console.log(`attempt ${attempt} finds ${counts()}`);
    return inTransaction(async () => {
      shop.prepare("insert into shipments values (?)").run(input.order);
      const result = await complete(shop, `parcel ${input.order}`);
      if (attempt === 1) throw new Error("the power failed before the commit");
      return result;
    });
  },
);

await using pod = await startPod({ store: "sqlite:shop.db", use: [ship] });

const { taskId } = await inTransaction(async () => {
  shop.prepare("insert into orders values (?)").run(7);
  return pod.enqueue(ship, { order: 7 }, { tx: shop });
});
const result = await pod.waitFor(taskId);
const { status } = (await pod.tasks.get(taskId))!;
console.log(`in the end: ${counts()}, and the task is ${status}:`, result);

/** One at a time: SQLite has one writer, and a connection has one transaction. */
function inTransaction<Result>(work: () => Promise<Result>): Promise<Result> {
  const done = turn.then(async () => {
    shop.exec("begin immediate");
    try {
      const value = await work();
      shop.exec("commit");
      return value;
    } catch (error) {
      shop.exec("rollback");
      throw error;
    }
  });
  turn = done.catch(() => {});
  return done;
}

function counts(): string {
  const count = (table: string) => shop.prepare(`select count(*) as n from ${table}`).get()?.["n"];
  return `${Number(count("orders"))} orders, ${Number(count("shipments"))} shipments`;
}
