import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Drains a logical slot with Debezium Embedded into a consumer that only counts.
 *
 * <p>Drain CHANGES LIMIT_SECONDS key=value... (Debezium properties; database.*, slot.name and publication.name are needed)
 *
 * <p>Prints "changes=N bytes=N seconds=S warm=R": the clock runs from the arrival of the first batch to the last change;
 * warm is the rate over the second half of the changes, when the JVM has compiled what it runs.
 */
public final class Drain implements DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> {
  private static final Map<String, String> SETTINGS = Map.ofEntries(
      Map.entry("name", "bench"),
      Map.entry("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
      Map.entry("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"),
      Map.entry("offset.flush.interval.ms", "60000"),
      Map.entry("topic.prefix", "bench"),
      Map.entry("plugin.name", "pgoutput"),
      Map.entry("publication.autocreate.mode", "disabled"),
      Map.entry("snapshot.mode", "no_data"),
      Map.entry("max.batch.size", "8192"),
      Map.entry("max.queue.size", "32768"),
      Map.entry("converter.schemas.enable", "false"),
      Map.entry("tombstones.on.delete", "false"));

  private final long target;
  private final CountDownLatch done = new CountDownLatch(1);
  private long changes;
  private long bytes;
  private long began;
  private long ended;
  private long halfChanges;
  private long halfAt;

  private Drain(long target) {
    this.target = target;
  }

  @Override
  public void handleBatch(
      List<ChangeEvent<String, String>> batch,
      DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
    if (began == 0) {
      began = System.nanoTime();
    }
    for (ChangeEvent<String, String> event : batch) {
      if (changes < target) { // what comes later is the mark behind the backlog
        changes++;
        bytes += event.value() == null ? 0 : event.value().length();
      }
      committer.markProcessed(event);
    }
    committer.markBatchFinished();
    if (changes >= target / 2 && halfAt == 0) {
      halfChanges = changes;
      halfAt = System.nanoTime();
    }
    if (changes >= target && ended == 0) {
      ended = System.nanoTime();
      done.countDown();
    }
  }

  private void finished(boolean success, String message, Throwable error) {
    if (!success) {
      System.err.println("failed: " + message + " " + error);
    }
    done.countDown();
  }

  /** SETTINGS, and over them those that the arguments from FIRST on give. */
  static Properties properties(String[] args, int first) {
    Properties properties = new Properties();
    properties.putAll(SETTINGS);
    for (int i = first; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      properties.setProperty(pair[0], pair[1]);
    }
    return properties;
  }

  public static void main(String[] args) throws Exception {
    Drain drain = new Drain(Long.parseLong(args[0]));
    Properties properties = properties(args, 2);
    DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class).using(properties).notifying(drain).using(drain::finished).build();
    ExecutorService executor = Executors.newSingleThreadExecutor();
    executor.execute(engine);
    boolean complete = drain.done.await(Long.parseLong(args[1]), TimeUnit.SECONDS) && drain.changes >= drain.target;
    double warm = (drain.changes - drain.halfChanges) / Math.max(1e-9, (drain.ended - drain.halfAt) / 1e9);
    System.out.printf(
        "changes=%d bytes=%d seconds=%.3f warm=%.0f%n",
        drain.changes, drain.bytes, (drain.ended - drain.began) / 1e9, warm);
    System.out.flush();
    Runtime.getRuntime().halt(complete ? 0 : 1); // the shutdown would wait for the engine
  }
}
