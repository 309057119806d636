// A task that is there if, and only if, your own transaction commits.
// prints: after the rollback: 0 orders, 0 tasks
// prints: after the commit: 1 orders, 1 tasks
import { DatabaseSync } from "node:sqlite";
import { connect, task } from "flotilla";

const ship = task("ship", {}, async () => {});

await using flotilla = connect("sqlite:shop.db");
await flotilla.tasks.stats();

const shop = new DatabaseSync("shop.db");
shop.exec("create table if not exists orders (id integer primary key)");

async function order(fails: boolean): Promise<void> {
  shop.exec("begin immediate");
  try {
    const { lastInsertRowid } = shop.prepare("insert into orders default values").run();
    await flotilla.enqueue(ship, { order: Number(lastInsertRowid) }, { tx: shop });
    if (fails) throw new Error("the payment was refused");
    shop.exec("commit");
  } catch {
    shop.exec("rollback");
  }
}

async function show(when: string): Promise<void> {
  const orders = shop.prepare("select count(*) as n from orders").get();
  const { byStatus } = await flotilla.tasks.stats();
  console.log(`after the ${when}: ${Number(orders?.["n"])} orders, ${byStatus.pending} tasks`);
}

await order(true);
await show("rollback");
await order(false);
await show("commit");
shop.close();
