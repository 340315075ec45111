import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Notes when Debezium Embedded hands over each event.
 *
 * <p>Latency EVENTS SECONDS WARM_UP key=value... (as for Drain)
 *
 * <p>Says "warm" after WARM_UP of the events; when so many have come, or the seconds are over, prints "KEY MICROSECONDS COMMITTED" of each: when its
 * batch was handed over, and source.ts_us.
 */
public final class Latency implements DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> {
  private static final Pattern KEY = Pattern.compile("\"id\":(\\d+)");
  private static final Pattern COMMITTED = Pattern.compile("\"source\":\\{.*?\"ts_us\":(\\d+)");

  private final CountDownLatch done = new CountDownLatch(1);
  private final StringBuilder seen = new StringBuilder();
  private final int target;
  private final int warmUp;
  private int events;

  private Latency(int target, int warmUp) {
    this.target = target;
    this.warmUp = warmUp;
  }

  @Override
  public void handleBatch(
      List<ChangeEvent<String, String>> batch,
      DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
    long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    for (ChangeEvent<String, String> event : batch) {
      Matcher key = KEY.matcher(event.key());
      Matcher committed = COMMITTED.matcher(event.value());
      if (events < target && key.find() && committed.find()) {
        if (++events == warmUp) {
          System.out.println("warm");
          System.out.flush();
        }
        seen.append(key.group(1)).append(' ').append(now).append(' ').append(committed.group(1)).append('\n');
      }
      committer.markProcessed(event);
    }
    committer.markBatchFinished();
    if (events >= target) {
      done.countDown();
    }
  }

  private void finished(boolean success, String message, Throwable error) {
    if (!success) {
      System.err.println("failed: " + message + " " + error);
    }
    done.countDown();
  }

  public static void main(String[] args) throws Exception {
    Latency latency = new Latency(Integer.parseInt(args[0]), Integer.parseInt(args[2]));
    Properties properties = Drain.properties(args, 3);
    DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class).using(properties).notifying(latency).using(latency::finished).build();
    ExecutorService executor = Executors.newSingleThreadExecutor();
    executor.execute(engine);
    latency.done.await(Long.parseLong(args[1]), TimeUnit.SECONDS);
    System.out.print(latency.seen);
    System.out.flush();
    Runtime.getRuntime().halt(0); // the shutdown would wait for the engine
  }
}
